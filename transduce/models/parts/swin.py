"""Swin: patches of an image through stages of windowed attention, and a norm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.errors import CheckpointError
from transduce.layers.build import Builder
from transduce.layers.norm import Norm
from transduce.models.config import Size, activation, view
from transduce.models.parts import ImageEncoder
from transduce.models.parts.patches import Patches, pair
from transduce.stacks.style import Style
from transduce.stacks.windowed import WindowedStack


@dataclass(frozen=True, slots=True, kw_only=True)
class SwinConfig:
    """The encoder's part of config.json."""

    image_size: Size | list[int] = 224
    patch_size: Size | list[int] = 4
    num_channels: Size = 3
    embed_dim: Size = 96
    depths: list[int] = field(default_factory=lambda: [2, 2, 6, 2])
    num_heads: list[int] = field(default_factory=lambda: [3, 6, 12, 24])
    window_size: Size = 7
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    hidden_act: str = "gelu"
    use_absolute_embeddings: bool = False
    layer_norm_eps: float = 1e-5

    @property
    def shape(self) -> tuple[int, int, int]:
        """As in ImageConfig."""
        return (self.num_channels, *pair("image_size", self.image_size))

    @property
    def patch(self) -> tuple[int, int]:
        """Its height and width."""
        return pair("patch_size", self.patch_size)

    @property
    def grids(self) -> tuple[tuple[int, int], ...]:
        """Rows down and across, of each stage."""
        (_, *sides), patch = self.shape, self.patch
        spans = [[each << i for each in patch] for i in range(len(self.depths))]
        return tuple((-(-sides[0] // down), -(-sides[1] // across)) for down, across in spans)

    @property
    def rows(self) -> int:
        """As in ImageConfig."""
        down, across = self.grids[-1]
        return down * across

    @property
    def width(self) -> int:
        """As in ImageConfig."""
        return self.embed_dim << len(self.depths) - 1

    @property
    def styles(self) -> tuple[Style, ...]:
        """Of each stage."""
        return tuple(
            self._style(depth, heads, self.embed_dim << i)
            for i, (depth, heads) in enumerate(zip(self.depths, self.num_heads, strict=True))
        )

    def _style(self, depth: int, heads: int, d: int) -> Style:
        head_dim = d // heads
        return Style(
            layers=depth,
            d=d,
            heads=heads,
            head_dim=head_dim,
            ffn=int(self.mlp_ratio * d),
            activation=activation(self.hidden_act),
            scale=head_dim**-0.5,
            pre_norm=True,
            eps=self.layer_norm_eps,
            attention_bias=(self.qkv_bias, self.qkv_bias, self.qkv_bias, True),
        )


def read(raw: Mapping[str, Any]) -> SwinConfig:
    """The view of the encoder's part of config.json. Raises CheckpointError on what no model can be made of."""
    config = view(SwinConfig, raw, file="config.json's encoder")
    depths, heads = config.depths, config.num_heads
    if not depths or len(depths) != len(heads) or not all(isinstance(n, int) and n > 0 for n in (*depths, *heads)):
        raise CheckpointError(f"config.json has depths={depths} and num_heads={heads}; give both for each stage")
    for i, number in enumerate(heads):
        if (config.embed_dim << i) % number:
            raise CheckpointError(f"config.json: stage {i}'s {config.embed_dim << i} is no multiple of {number} heads")
    if min(map(min, config.grids)) < config.window_size:
        raise CheckpointError(
            f"config.json has image_size={config.image_size}, of which the stages make grids {list(config.grids)}; "
            f"none may be smaller than the window_size {config.window_size}"
        )
    return config


@dataclass(frozen=True, slots=True, eq=False)
class Swin:
    """patch: its height and width. positions: of the patches [patches, d], where the model has them."""

    patch: tuple[int, int]
    patches: Patches
    first: Norm
    positions: Tensor | None
    stack: WindowedStack
    last: Norm | None

    @classmethod
    def build(cls, config: SwinConfig, b: Builder, last: bool) -> "Swin":
        """last: whether there is a norm behind the last stage."""
        at, d, (down, across) = b.at("embeddings"), config.embed_dim, config.grids[0]
        known = config.use_absolute_embeddings
        return cls(
            config.patch,
            Patches.build(at, config.num_channels, config.patch, d),
            at.layer_norm("norm", d),
            at.tensor("position_embeddings", (1, down * across, d))[0] if known else None,
            WindowedStack.build(b, config.styles, config.grids, config.window_size),
            b.layer_norm("layer_norm", config.width, config.layer_norm_eps) if last else None,
        )

    def __call__(self, images: Sequence[Tensor]) -> Tensor:
        """As Tower."""
        return torch.cat([self._rows(image) for image in images])

    def _rows(self, image: Tensor) -> Tensor:
        below, right = (-side % patch for side, patch in zip(image.shape[1:], self.patch, strict=True))
        x = self.first(self.patches(F.pad(image, (0, right, 0, below))))
        x = self.stack(x if self.positions is None else x + self.positions)
        return x if self.last is None else self.last(x)


ENCODER = ImageEncoder(read, partial(Swin.build, last=True))
