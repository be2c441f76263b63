"""Tables looked up by token id or position, and the sinusoidal table that some checkpoints leave out."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.kernels import ops
from transduce.layers.norm import Norm


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """table[ids] * scale; ids [rows] int64 -> [rows, d]. An id outside the table is the caller's bug."""

    table: Tensor
    scale: float = 1.0

    def __call__(self, ids: Tensor) -> Tensor:
        rows = F.embedding(ids, self.table)
        return rows if self.scale == 1.0 else rows * self.scale


@dataclass(frozen=True, slots=True, eq=False)
class IntegerEmbedding:
    """table[ids] * scale[ids], rounded to dtype: table [rows, d] int8, scale [rows] float32; ids as for Embedding."""

    table: Tensor
    scale: Tensor
    dtype: torch.dtype

    def __call__(self, ids: Tensor) -> Tensor:
        return ops.look_up(ids, self.table, self.scale, self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class TokenEmbedding:
    """What a text stack starts from: norm(tokens + positions), each but the tokens where the model has it."""

    tokens: Embedding | IntegerEmbedding
    positions: Embedding | None = None
    norm: Norm | None = None

    def __call__(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """tokens, positions [rows] int64 -> [rows, d]."""
        return self.placed(self.tokens(tokens), positions)

    def placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """The same from rows x [rows, d] that stand in place of tokens."""
        if self.positions is not None:
            x = x + self.positions(positions)
        return x if self.norm is None else self.norm(x)


def sinusoidal(positions: int, d: int) -> Tensor:
    """[positions, d] float32: sines in the first half of the columns, cosines in the second, wavelengths 2π to 2π·10⁴.

    With d odd the sines have one column more.
    """
    columns = torch.arange(d, dtype=torch.float64)
    frequencies = 10000.0 ** (-2 * (columns // 2) / d)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=1).float()
