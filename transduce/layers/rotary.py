"""Rotary position embeddings: neighbouring dimensions of queries and keys, turned in pairs by their position.

Owns the angles and the turning. A position's bits are always the same: its sines are looked up. Knows no attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The turning of so many rows. cos, sin: [rows, 1, 1, turned] float32; a pair's sines are of opposite signs."""

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, parts, heads, head_dim], its first dimensions turned in float32 and rounded once."""
        turned, rest = x.tensor_split((self.cos.shape[-1],), dim=-1)
        others = turned.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return torch.cat(((turned * self.cos + others * self.sin).to(x.dtype), rest), dim=-1)


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """table: cosines, then sines, of every position [positions, 2 * turned] float32."""

    table: Tensor

    @classmethod
    def build(cls, positions: int, dim: int, base: float, device: torch.device) -> "Rotary":
        """Frequencies base ** (-2i / dim) for each of the pairs that `dim` dimensions begin."""
        # float32, as trained: the angles of late positions are what float32 rounds them to.
        frequencies = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        table = torch.cat([cos.repeat_interleave(2, dim=1), torch.stack([-sin, sin], dim=2).flatten(1)], dim=1)
        return cls(table.to(device))

    def at(self, positions: Tensor) -> Turn:
        """For rows at these positions [rows] int64."""
        return self._turn(F.embedding(positions, self.table))

    def packed(self, lengths: Sequence[int]) -> Turn:
        """For the rows of packed items, each of which begins at position 0."""
        return self._turn(torch.cat([self.table[:length] for length in lengths]))

    def _turn(self, rows: Tensor) -> Turn:
        cos, sin = rows[:, None, None].chunk(2, dim=-1)
        return Turn(cos, sin)
