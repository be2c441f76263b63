"""Llama 3.2's vision tower: an image in tiles, through a transformer of plain layers and one of gated layers.

A tower computes as many tiles as it has places, and its padding: what is real attends to that too. Only rows of what
is real come out. Knows no text.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.layers.attention import PaddedSelfAttention
from transduce.layers.build import Builder
from transduce.layers.norm import Norm
from transduce.models.mllama.config import VisionConfig
from transduce.stacks.style import FeedForward, GatedResidual, Residual, Style

MULTIPLE = 8
"""A tile's rows are filled up to a multiple of this."""


def padded(rows: int) -> int:
    """Rows that are computed of a tile."""
    return -(-rows // MULTIPLE) * MULTIPLE


@dataclass(frozen=True, slots=True, eq=False)
class VisionLayer:
    """Self-attention and feed-forward, each in its residual."""

    attention: PaddedSelfAttention
    around_attention: Residual | GatedResidual
    feed_forward: FeedForward
    around_feed_forward: Residual | GatedResidual

    @classmethod
    def build(cls, b: Builder, style: Style, gated: bool) -> "VisionLayer":
        def around(name: str, gate: str) -> Residual | GatedResidual:
            return GatedResidual.build(b, style, name, gate) if gated else Residual.build(b, style, name)

        return cls(
            PaddedSelfAttention.build(b.at("self_attn"), style.head_shape, style.scale),
            around("attn_layer_norm", "gate_attn"),
            FeedForward.build(b, style),
            around("final_layer_norm", "gate_ffn"),
        )

    def __call__(self, x: Tensor, real: int) -> Tensor:
        """x [rows, d] -> [rows, d], the first `real` ones of which are real."""
        x = self.around_attention(x, lambda rows, residual: self.attention(rows, real, residual))
        return self.around_feed_forward(x, self.feed_forward)


@dataclass(frozen=True, slots=True, eq=False)
class TileTable:
    """What is added to each place for a tile, by the image's aspect ratio: table [ratios + 1, tiles, ...], gate [1].

    Row 0 of the table is for no image, and not used.
    """

    table: Tensor
    gate: Tensor

    @classmethod
    def build(cls, b: Builder, name: str, gate: str, config: VisionConfig, *each: int) -> "TileTable":
        """each: the shape of what is added to a tile."""
        shape = (len(config.ratios) + 1, config.max_num_tiles, *each)
        table = b.tensor(f"{name}.weight", (shape[0], torch.Size(shape[1:]).numel()))
        return cls(table.view(shape), b.tensor(gate, (1,)).tanh())

    def __call__(self, ratio: int) -> Tensor:
        """For the ratio of this index: [tiles, ...]."""
        return self.gate * self.table[ratio + 1]


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """From pixels to rows: a convolution, one more row for the whole tile, and where each stands.

    convolution: [d, channels, size, size]. whole: [d]. positions: [rows, d].
    """

    convolution: Tensor
    whole: Tensor
    tiles: TileTable
    positions: Tensor
    tile_positions: TileTable
    norm: Norm

    @classmethod
    def build(cls, b: Builder, config: VisionConfig) -> "Patches":
        d, size = config.hidden_size, config.patch_size
        at, gate = b.at("gated_positional_embedding"), "gate"
        positions = (1 - at.tensor(gate, (1,)).tanh()) * at.tensor("embedding", (config.rows, d))
        return cls(
            b.tensor("patch_embedding.weight", (d, config.num_channels, size, size)),
            b.tensor("class_embedding", (d,)),
            TileTable.build(b.at("pre_tile_positional_embedding"), "embedding", gate, config, d),
            positions,
            TileTable.build(at, "tile_embedding", gate, config, config.rows, d),
            b.layer_norm("layernorm_pre", d),
        )

    def __call__(self, tiles: Tensor, ratio: int) -> Tensor:
        """tiles [tiles, channels, height, width] -> [places for tiles, rows, d]; places without one are black."""
        places = self.tiles(ratio)
        x = (
            F.conv2d(tiles.to(self.whole.dtype), self.convolution, stride=self.convolution.shape[-1])
            .flatten(2)
            .transpose(1, 2)
        )
        x = F.pad(x, (0, 0, 0, 0, 0, len(places) - len(tiles))) + places[:, None]
        x = torch.cat((self.whole.expand(len(places), 1, -1), x), dim=1)
        x = x + self.positions + self.tile_positions(ratio)
        return self.norm(x.flatten(0, 1)).view(x.shape)


@dataclass(frozen=True, slots=True, eq=False)
class VisionTower:
    """One image at a time, so that its rows know no other image.

    taken: the plain layers whose results stand beside the last one's.
    """

    ratios: tuple[tuple[int, int], ...]
    patches: Patches
    plain: tuple[VisionLayer, ...]
    norm: Norm
    tiles: TileTable
    gated: tuple[VisionLayer, ...]
    taken: tuple[int, ...]

    @classmethod
    def build(cls, b: Builder, config: VisionConfig) -> "VisionTower":
        b, style, d = b.for_encoder_rows(), config.style, config.hidden_size

        def layers(name: str, count: int, gated: bool) -> Iterator[VisionLayer]:
            return (VisionLayer.build(b.at(f"{name}.layers.{i}"), style, gated) for i in range(count))

        return cls(
            config.ratios,
            Patches.build(b, config),
            tuple(layers("transformer", config.num_hidden_layers, gated=False)),
            b.layer_norm("layernorm_post", d),
            TileTable.build(b.at("post_tile_positional_embedding"), "embedding", "gate", config, d),
            tuple(layers("global_transformer", config.num_global_layers, gated=True)),
            tuple(config.intermediate_layers_indices),
        )

    def __call__(self, image: Tensor) -> Tensor:
        """image [tiles down, tiles across, channels, height, width] -> [tiles * rows of each, (1 + taken) * d]."""
        ratio = self.ratios.index((image.shape[0], image.shape[1]))
        grid = self.patches(image.flatten(0, 1), ratio)
        tiles, rows = image.shape[0] * image.shape[1], grid.shape[1]
        grid = F.pad(grid, (0, 0, 0, padded(rows) - rows))
        places = self.tiles(ratio)[:, None].expand(grid.shape)
        x, between, real = _real_first(grid, tiles, rows), _real_first(places, tiles, rows), tiles * rows
        results = {}
        for i, layer in enumerate(self.plain):
            x = layer(x, real)
            if i in self.taken:
                results[i] = x[:real]
        x = self.norm(x) + between
        for layer in self.gated:
            x = layer(x, real)
        beside = torch.stack([results[i] for i in self.taken], dim=-1)
        return torch.cat((x[:real], beside.flatten(1)), dim=1)


def _real_first(grid: Tensor, tiles: int, rows: int) -> Tensor:
    """grid [places for tiles, padded rows, d] to [all rows, d]: the first `rows` of the first `tiles`, and the rest."""
    parts = (grid[:tiles, :rows], grid[:tiles, rows:], grid[tiles:])
    return torch.cat([part.flatten(0, 1) for part in parts])
