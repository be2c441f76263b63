"""The contract of a weight scheme: how a linear layer stores its weight and multiplies by it.

Owns Linear, Epilogue, ParamSpec and Scheme. Knows no layer and no model.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from transduce.kernels import ops

Activation = Literal["relu", "gelu", "gelu_new", "silu"]


@dataclass(frozen=True, slots=True, eq=False)
class Epilogue:
    """What follows the matmul: out = activation(x @ weight.T + bias), rounded to `dtype`."""

    dtype: torch.dtype
    bias: Tensor | None = None
    activation: Activation | None = None


@dataclass(frozen=True, slots=True)
class RowsHint:
    """What is known of the rows a layer will be given.

    tile: how many to hand to every kernel call, where a row's bits depend on their number.
    outliers: whether some values are far beyond the row's others, so that few bits would leave the others none.
    """

    tile: int
    outliers: bool = False


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One stored tensor of a linear layer: its shape, and which of its dimensions follow the layer's out and in.

    dtype: what it is loaded as; None: the model's.
    """

    shape: tuple[int, ...]
    out_dim: int | None
    in_dim: int | None
    dtype: torch.dtype | None = None


class Linear(ABC):
    """A loaded linear layer. A row of the result never depends on the other rows."""

    @abstractmethod
    def __call__(self, x: Tensor, times: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        """activation(x @ weight.T + bias) [* times] [+ plus]; x [rows, in] -> [rows, out], as are times and plus."""

    def best(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of each row of self(x) the greatest value and its index, the lowest of equals: two [rows]."""
        return ops.best(self(x))

    def top_k_lse(self, x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of each row of self(x) the k greatest values, best first, their indices, and the log-sum-exp.

        float32 [rows, k], int64 [rows, k] and float32 [rows]; k is at most out. Of equals the lower index comes first.
        """
        values = self(x)
        return ops.top_k_lse(values, min(k, values.shape[1]))


class Scheme(ABC):
    """How the weight of a linear layer, or of a table of tokens, is stored and used.

    name: what `quantization` calls it; None: not to be asked for.
    pages: what keys and values may be rounded to beside such weights; None: they stay as they are computed.
    """

    name: ClassVar[str | None] = None
    pages: ClassVar[torch.dtype | None] = None

    @abstractmethod
    def params(self, out_features: int, in_features: int) -> dict[str, ParamSpec]:
        """The tensors a checkpoint holds for such a layer."""

    def quantize(self, weight: Tensor) -> dict[str, Tensor]:
        """Those tensors, made of a weight [out, in] of any float type."""
        return {"weight": weight}

    def table(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Rows [rows, d] to be looked up, and what each is multiplied by [rows], float32; None: nothing."""
        return tensors["weight"], None

    @abstractmethod
    def prepare(self, tensors: Mapping[str, Tensor], epilogue: Epilogue, rows: RowsHint) -> Linear:
        """The layer of these tensors; called once."""

    @abstractmethod
    def call_rows(self, dtype: torch.dtype, device: torch.device, tile: int) -> int:
        """Rows to which a smaller call is padded: a step laid out in as many spares it the copying."""
