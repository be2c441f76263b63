"""Rotary position embeddings: dimensions of queries and keys, turned in pairs by their position.

Owns the frequencies, the angles and the turning. A position's bits are always the same: its sines are looked up. Knows
no attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor


def frequencies(dim: int, base: float) -> Tensor:
    """base ** (-2i / dim) for each of the pairs that `dim` dimensions begin: [pairs] float32."""
    # float32, as trained: the angles of late positions are what float32 rounds them to.
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Llama 3's: waves longer than `positions` / `low` are `factor` times as long, those shorter than `positions` /
    `high` stay, and between the two it fades.
    """

    factor: float
    low: float
    high: float
    positions: int

    def __call__(self, frequencies: Tensor) -> Tensor:
        """frequencies [pairs] -> [pairs]."""
        waves = self.positions * frequencies / (2 * pi)  # so many of each in `positions`
        kept = ((waves - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The turning of so many rows. cos, sin: [rows, 1, turned] float32; a pair's sines are of opposite signs.

    halves: pairs are of the first and the second half of the dimensions, else of neighbours.
    """

    cos: Tensor
    sin: Tensor
    halves: bool

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, heads, head_dim], its first dimensions turned in float32 and rounded once."""
        turned, rest = x.tensor_split((self.cos.shape[-1],), dim=-1)
        shape, pair = ((2, -1), -2) if self.halves else ((-1, 2), -1)
        others = turned.unflatten(-1, shape).flip(pair).flatten(-2)
        return torch.cat(((turned * self.cos + others * self.sin).to(x.dtype), rest), dim=-1)


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """table: cosines, then sines, of every position [positions, 2 * turned] float32. halves: as in Turn."""

    table: Tensor
    halves: bool = False

    @classmethod
    def build(cls, positions: int, frequencies: Tensor, device: torch.device, halves: bool = False) -> "Rotary":
        """frequencies: [pairs] float32, in radians from one position to the next."""
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        pair = 1 if halves else 2
        both = [torch.stack(signed, dim=pair).flatten(1) for signed in ([cos, cos], [-sin, sin])]
        return cls(torch.cat(both, dim=1).to(device), halves)

    def at(self, positions: Tensor) -> Turn:
        """For rows at these positions [rows] int64."""
        return self._turn(F.embedding(positions, self.table))

    def packed(self, lengths: Sequence[int]) -> Turn:
        """For the rows of packed items, each of which begins at position 0."""
        return self._turn(torch.cat([self.table[:length] for length in lengths]))

    def _turn(self, rows: Tensor) -> Turn:
        cos, sin = rows[:, None].chunk(2, dim=-1)
        return Turn(cos, sin, self.halves)
