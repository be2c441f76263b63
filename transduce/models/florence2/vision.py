"""Florence-2's tower (DaViT) and projector: an image to rows, coarser grid by coarser grid.

On each grid blocks take turns: rows attend within windows, then channels attend to channels over all rows. One image at
a time, so that its rows know no other image. Knows no text.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.layers.build import Builder
from transduce.layers.norm import Norm
from transduce.layers.windows import Windows
from transduce.models.florence2.config import Grid, Stage, VisionConfig
from transduce.quant.base import Linear
from transduce.stacks.style import FeedForward, Residual, Style


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """weight: [outputs, channels of each group, size, size]. bias: [outputs]."""

    weight: Tensor
    bias: Tensor
    stride: int
    padding: int
    groups: int

    @classmethod
    def build(
        cls, b: Builder, name: str, shape: tuple[int, int, int], stride: int, padding: int, groups: int = 1
    ) -> "Convolution":
        """shape: outputs, channels of each group, size."""
        weight = b.tensor(f"{name}.weight", (*shape, shape[-1]))
        return cls(weight, b.tensor(f"{name}.bias", shape[:1]), stride, padding, groups)

    def __call__(self, x: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        """x [rows of the grid, channels] -> [rows of the next one, outputs], and that grid."""
        picture = x.view(1, *grid, -1).permute(0, 3, 1, 2)
        made = F.conv2d(picture, self.weight, self.bias, self.stride, self.padding, groups=self.groups)
        return made.permute(0, 2, 3, 1).flatten(0, 2).contiguous(), (made.shape[2], made.shape[3])


@dataclass(frozen=True, slots=True, eq=False)
class WindowAttention:
    """Every row attends to the rows of its window, the zeros that fill it up among them."""

    size: int
    heads: int
    scale: float
    qkv: Linear
    out: Linear

    @classmethod
    def build(cls, b: Builder, style: Style, size: int) -> "WindowAttention":
        return cls(size, style.heads, style.scale, *_linears(b, style))

    def __call__(self, x: Tensor, grid: Grid, residual: Tensor) -> Tensor:
        """x [rows, d] -> [rows, d], plus residual [rows, d]."""
        windows = Windows(*grid, self.size, shift=0)
        cut = windows.cut(x)
        qkv = self.qkv(cut.flatten(0, 2)).view(-1, self.size**2, 3, self.heads, x.shape[1] // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(q, k, v, scale=self.scale).transpose(1, 2)
        return self.out(windows.joined(read.reshape(cut.shape)), plus=residual)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelAttention:
    """Every channel attends to the channels of its group, by their values in all rows."""

    groups: int
    qkv: Linear
    out: Linear

    @classmethod
    def build(cls, b: Builder, style: Style, groups: int) -> "ChannelAttention":
        return cls(groups, *_linears(b, style))

    def __call__(self, x: Tensor, grid: Grid, residual: Tensor) -> Tensor:
        """x [rows, d] -> [rows, d], plus residual [rows, d]."""
        q, k, v = self.qkv(x).view(len(x), 3, self.groups, -1).permute(1, 2, 3, 0)
        read = F.scaled_dot_product_attention(q, k, v, scale=len(x) ** -0.5)
        return self.out(read.permute(2, 0, 1).flatten(1).contiguous(), plus=residual)


def _linears(b: Builder, style: Style) -> tuple[Linear, Linear]:
    """The three projections as one, and the one behind."""
    qkv = b.linear("qkv", style.d, 3 * style.d, bias=style.attention_bias[0])
    return qkv, b.linear("proj", style.d, style.d, bias=style.attention_bias[3])


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Attention and feed-forward, each in its residual and behind a convolution that has one too."""

    before_attention: Convolution
    around_attention: Residual
    attention: WindowAttention | ChannelAttention
    before_feed_forward: Convolution
    around_feed_forward: Residual
    feed_forward: FeedForward

    @classmethod
    def build(cls, b: Builder, style: Style, attention: WindowAttention | ChannelAttention) -> "Block":
        def near(name: str) -> Convolution:
            return Convolution.build(b, name, (style.d, 1, 3), stride=1, padding=1, groups=style.d)

        return cls(
            near("conv1"),
            Residual.build(b, style, "norm1"),
            attention,
            near("conv2"),
            Residual.build(b, style, "norm2"),
            FeedForward.build(b.at("ffn"), style),
        )

    def __call__(self, x: Tensor, grid: Grid) -> Tensor:
        """x [rows, d] -> [rows, d]."""
        x = x + self.before_attention(x, grid)[0]
        x = self.around_attention(x, lambda rows, residual: self.attention(rows, grid, residual))
        x = x + self.before_feed_forward(x, grid)[0]
        return self.around_feed_forward(x, self.feed_forward)


@dataclass(frozen=True, slots=True, eq=False)
class Coarser:
    """To the grid of the next stage."""

    convolution: Convolution
    norm: Norm
    prenorm: bool

    @classmethod
    def build(cls, b: Builder, stage: Stage) -> "Coarser":
        shape = (stage.style.d, stage.channels, stage.patch)
        convolution = Convolution.build(b, "conv", shape, stage.stride, stage.padding)
        norm = b.layer_norm("norm", stage.channels if stage.prenorm else stage.style.d)
        return cls(convolution, norm, stage.prenorm)

    def __call__(self, x: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        """x [rows of the grid, channels] -> [rows of the next one, d], and that grid."""
        x, grid = self.convolution(self.norm(x) if self.prenorm else x, grid)
        return x if self.prenorm else self.norm(x), grid


@dataclass(frozen=True, slots=True, eq=False)
class Projector:
    """Places in the last grid, a row for the whole, and the text's width.

    down, across: [positions, part of d] each. first: [d], added to all, for a single image is the first of a film.
    projection: [d, width].
    """

    down: Tensor
    across: Tensor
    first: Tensor
    projection: Tensor
    norm: Norm

    @classmethod
    def build(cls, b: Builder, config: VisionConfig) -> "Projector":
        d, width, places = config.embed_dim[-1], config.projection_dim, b.at("image_position_embed")
        within = b.has("image_projection")  # as in older files
        return cls(
            places.tensor("row_embeddings.weight", (config.max_position_embeddings, d // 2)),
            places.tensor("column_embeddings.weight", (config.max_position_embeddings, d - d // 2)),
            b.tensor("visual_temporal_embed.pos_idx_to_embed", (config.max_temporal_embeddings, d))[0],
            b.tensor("image_projection", (d, width)) if within else b.tensor("image_projection.weight", (width, d)).T,
            b.layer_norm("image_proj_norm", width),
        )

    def __call__(self, x: Tensor, grid: Grid) -> Tensor:
        """x [rows, d] -> [1 + rows, width]."""
        down, across = grid
        places = (self.across[:across].expand(down, -1, -1), self.down[:down, None].expand(-1, across, -1))
        x = x + torch.cat(places, dim=-1).flatten(0, 1) + self.first
        return self.norm(torch.cat((x.mean(0, keepdim=True), x)) @ self.projection)


@dataclass(frozen=True, slots=True, eq=False)
class VisionTower:
    """All stages, and the projector behind them."""

    steps: tuple[tuple[Coarser, tuple[Block, ...]], ...]
    projector: Projector

    @classmethod
    def build(cls, b: Builder, config: VisionConfig) -> "VisionTower":
        b = b.for_encoder_rows()
        at = b.at("vision")
        steps = (
            (Coarser.build(at.at(f"convs.{i}"), stage), tuple(_blocks(at.at(f"blocks.{i}"), stage, config.window_size)))
            for i, stage in enumerate(config.stages)
        )
        return cls(tuple(steps), Projector.build(b.at("projector"), config))

    def __call__(self, image: Tensor) -> Tensor:
        """image [channels, height, width] -> [rows, width]."""
        grid = (image.shape[1], image.shape[2])
        x = image.flatten(1).T.to(self.projector.first.dtype).contiguous()
        for coarser, blocks in self.steps:
            x, grid = coarser(x, grid)
            for block in blocks:
                x = block(x, grid)
        return self.projector(x, grid)


def _blocks(b: Builder, stage: Stage, window: int) -> Iterator[Block]:
    for i in range(stage.style.layers):
        rows, channels = b.at(f"{i}.spatial_block"), b.at(f"{i}.channel_block")
        yield Block.build(rows, stage.style, WindowAttention.build(rows.at("window_attn"), stage.style, window))
        attention = ChannelAttention.build(channels.at("channel_attn"), stage.style, stage.groups)
        yield Block.build(channels, stage.style, attention)
