"""Swin's stack: stages of layers whose rows attend within windows, each stage on a grid half as high and wide."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.layers.build import Builder
from transduce.layers.norm import Norm
from transduce.layers.windows import WindowAttention, Windows
from transduce.quant.base import Linear
from transduce.stacks.style import FeedForward, Residual, Style


@dataclass(frozen=True, slots=True, eq=False)
class WindowedLayer:
    """Self-attention and feed-forward, each in its residual."""

    attention: WindowAttention
    around_attention: Residual
    feed_forward: FeedForward
    around_feed_forward: Residual

    @classmethod
    def build(cls, b: Builder, style: Style, windows: Windows) -> "WindowedLayer":
        return cls(
            WindowAttention.build(b.at("self_attn"), style.head_shape, style.scale, windows),
            Residual.build(b, style, "self_attn_layer_norm"),
            FeedForward.build(b, style),
            Residual.build(b, style, "final_layer_norm"),
        )

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, d] -> [rows, d]."""
        return self.around_feed_forward(self.around_attention(x, self.attention), self.feed_forward)


@dataclass(frozen=True, slots=True, eq=False)
class Merging:
    """Four neighbours of a grid to one row of twice the width; an odd grid is filled up with zeros."""

    height: int
    width: int
    norm: Norm
    reduction: Linear

    @classmethod
    def build(cls, b: Builder, grid: tuple[int, int], d: int) -> "Merging":
        return cls(*grid, b.layer_norm("norm", 4 * d), b.linear("reduction", 4 * d, 2 * d, bias=False))

    def __call__(self, x: Tensor) -> Tensor:
        """x [height * width, d] -> [rows, 2 * d]."""
        grid = x.unflatten(0, (self.height, self.width))
        grid = F.pad(grid, (0, 0, 0, self.width % 2, 0, self.height % 2))
        four = torch.cat([grid[down::2, across::2] for across in range(2) for down in range(2)], dim=-1)
        return self.reduction(self.norm(four.flatten(0, 1)))


@dataclass(frozen=True, slots=True, eq=False)
class WindowedStack:
    """One grid through all stages: their layers, and the merging between each and the next."""

    steps: tuple[WindowedLayer | Merging, ...]

    @classmethod
    def build(cls, b: Builder, styles: Sequence[Style], grids: Sequence[tuple[int, int]], size: int) -> "WindowedStack":
        """styles, grids: of each stage. size: of the windows, at most a grid's height and width."""
        b = b.for_encoder_rows()
        steps: list[WindowedLayer | Merging] = []
        for i, (style, grid) in enumerate(zip(styles, grids, strict=True)):
            at = b.at(f"layers.{i}")
            for j in range(style.layers):
                shift = size // 2 if j % 2 and min(grid) > size else 0
                steps.append(WindowedLayer.build(at.at(f"blocks.{j}"), style, Windows(*grid, size, shift)))
            if i + 1 < len(styles):
                steps.append(Merging.build(at.at("downsample"), grid, style.d))
        return cls(tuple(steps))

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows of the first grid, d] -> [rows of the last, its d]."""
        for step in self.steps:
            x = step(x)
        return x
