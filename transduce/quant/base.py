"""The contract of a weight scheme: how a linear layer stores its weight and multiplies by it.

Owns Rows, Epilogue, ParamSpec and Scheme. Knows no layer and no model.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Activation = Literal["relu", "gelu", "gelu_new", "silu"]


@dataclass(frozen=True, slots=True, eq=False)
class Epilogue:
    """What follows the matmul: out = activation(x @ weight.T + bias)."""

    bias: Tensor | None = None
    activation: Activation | None = None


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One stored tensor of a linear layer: its shape, and which of its dimensions follow the layer's out and in."""

    shape: tuple[int, ...]
    out_dim: int | None
    in_dim: int | None


class Scheme(ABC):
    """How a linear layer's weight is stored and used. A row of the result never depends on the other rows."""

    @abstractmethod
    def params(self, out_features: int, in_features: int) -> dict[str, ParamSpec]:
        """The tensors a checkpoint holds for such a layer."""

    @abstractmethod
    def prepare(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The loaded tensors in the form `linear` uses (packed, transposed); called once."""

    @abstractmethod
    def linear(self, x: Tensor, prepared: tuple[Tensor, ...], epilogue: Epilogue, tile: int) -> Tensor:
        """x [rows, in] -> [rows, out].

        tile: rows of every kernel call, where a row's bits depend on their number; always the same for one layer.
        """

    @abstractmethod
    def call_rows(self, dtype: torch.dtype, device: torch.device, tile: int) -> int:
        """Rows to which a smaller call of `linear` is padded: a step laid out in as many spares it the copying."""
