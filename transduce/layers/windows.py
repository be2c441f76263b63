"""Self-attention within windows of a grid of rows, which may be shifted against each other, with a bias by distance.

Owns how a grid is cut and joined again. One grid at a time: its rows know no other grid.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.layers.attention import HeadShape
from transduce.layers.build import Builder
from transduce.quant.base import Linear

APART = -100.0
"""What a score owes to its row and key being of different parts of the grid, as trained."""

Block = tuple[slice, slice, Tensor]
"""Neighbouring windows, down and across, whose scores get the same: [heads, rows of a window, rows of a window]."""


@dataclass(frozen=True, slots=True)
class Windows:
    """A grid of height * width rows in windows of size * size, which begin `shift` rows further down and right.

    What lies before them goes to the other end; a grid that is no multiple of `size` is filled up with zeros.
    """

    height: int
    width: int
    size: int
    shift: int

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width in whole windows."""
        height, width = (-(-side // self.size) * self.size for side in (self.height, self.width))
        return height, width

    def cut(self, x: Tensor) -> Tensor:
        """x [height * width, d] -> [windows down, windows across, size * size, d]."""
        height, width = self.padded
        grid = F.pad(x.unflatten(0, (self.height, self.width)), (0, 0, 0, width - self.width, 0, height - self.height))
        turned = grid.roll((-self.shift, -self.shift), (0, 1))
        four = turned.view(height // self.size, self.size, width // self.size, self.size, x.shape[1])
        return four.transpose(1, 2).flatten(2, 3)

    def joined(self, windows: Tensor) -> Tensor:
        """The inverse of cut."""
        down, across, _, d = windows.shape
        grid = windows.view(down, across, self.size, self.size, d).transpose(1, 2).reshape(*self.padded, d)
        return grid.roll((self.shift, self.shift), (0, 1))[: self.height, : self.width].flatten(0, 1)

    def blocks(self, bias: Tensor) -> Iterator[Block]:
        """All windows, where `bias` holds for each: in the last ones of a shifted grid two ends meet."""
        if not self.shift:
            yield slice(None), slice(None), bias
            return
        beyond = torch.arange(self.size, device=bias.device) >= self.size - self.shift
        for down in (slice(-1), slice(-1, None)):
            for across in (slice(-1), slice(-1, None)):
                part = (beyond & (down.start is not None))[:, None] + 2 * (beyond & (across.start is not None))
                apart = part.flatten()[:, None] != part.flatten()
                yield down, across, torch.where(apart, bias + APART, bias)


@dataclass(frozen=True, slots=True, eq=False)
class WindowAttention:
    """Every row attends to the rows of its window, the zeros that fill it up among them."""

    shape: HeadShape
    scale: float
    windows: Windows
    blocks: tuple[Block, ...]
    qkv: Linear
    out: Linear

    @classmethod
    def build(cls, b: Builder, shape: HeadShape, scale: float, windows: Windows) -> "WindowAttention":
        bias = _bias(b.tensor("relative_position_bias_table", ((2 * windows.size - 1) ** 2, shape.heads)), windows.size)
        names = ("q_proj", "k_proj", "v_proj")
        return cls(
            shape,
            scale,
            windows,
            tuple(windows.blocks(bias)),
            b.linear(names, shape.d, (shape.width,) * 3, bias=shape.bias[:3]),
            b.linear("out_proj", shape.width, shape.d, bias=shape.bias[3]),
        )

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        """x [height * width, d] -> [height * width, d], plus residual of the same shape."""
        cut = self.windows.cut(x)
        qkv = self.qkv(cut.flatten(0, 2)).unflatten(0, cut.shape[:3]).unflatten(-1, (3, self.shape.heads, -1))
        q, k, v = qkv.permute(3, 0, 1, 4, 2, 5)
        attended = q.new_empty(*cut.shape[:3], self.shape.heads, self.shape.head_dim)
        for down, across, bias in self.blocks:
            block = [part[down, across].flatten(0, 1) for part in (q, k, v)]
            read = F.scaled_dot_product_attention(block[0], block[1], block[2], bias, scale=self.scale)
            attended[down, across] = read.transpose(1, 2).view(attended[down, across].shape)
        return self.out(self.windows.joined(attended.flatten(3)), plus=residual)


def _bias(table: Tensor, size: int) -> Tensor:
    """By distance [(2 * size - 1)², heads] to by pair of rows [heads, size², size²]."""
    places = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    down, across = (places[:, None] - places + size - 1).unbind(-1)
    return table[(down * (2 * size - 1) + across).to(table.device)].permute(2, 0, 1).contiguous()
