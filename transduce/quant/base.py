"""The contract of a weight scheme: how a linear layer stores its weight and multiplies by it.

Owns Linear, Epilogue, ParamSpec, Scope and Scheme. Knows no layer and no model.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Generator, Tensor

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


class Scope(Protocol):
    """What a checkpoint holds of one layer, whose name is `name`. CheckpointError where it holds no such tensor."""

    @property
    def name(self) -> str: ...

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds the tensor."""

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """The tensor in the model's dtype unless another is given."""

    def stored(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of floats at whatever type it is stored."""

    def whole(self, name: str) -> Tensor:
        """The tensor whatever its shape and type."""

    def generator(self, name: str) -> Generator | None:
        """What a tensor is drawn with where there is no checkpoint; None: there is one."""


class Scheme(ABC):
    """How the weight of a linear layer, or of a table of tokens, is stored and used.

    name: what `quantization` calls it; None: not to be asked for.
    pages: what keys and values may be rounded to beside such weights; None: they stay as they are computed.
    tables: whether it is for tables of tokens too. keep: patterns over layers that it leaves out where the user says
    nothing, whatever the family.
    """

    name: ClassVar[str | None] = None
    pages: ClassVar[torch.dtype | None] = None
    tables: ClassVar[bool] = True
    keep: ClassVar[tuple[str, ...]] = ()

    def of(self, entry: Mapping[str, Any]) -> "Scheme | None":
        """The scheme for weights stored as an entry of config.json says; None: not in this way."""
        return self if self.name is not None and entry.get("quant_method") == self.name else None

    def holds(self, layer: Scope) -> bool:
        """Whether a layer's weight is stored so; false for what a quantized checkpoint left in floats."""
        return True

    def finish(self) -> None:
        """To be called when the model is built: CheckpointError where its layers should be stored so, and none is."""
        return

    @abstractmethod
    def params(self, out_features: int, in_features: int) -> dict[str, ParamSpec]:
        """The tensors of such a layer."""

    def load(self, layer: Scope, out_features: int, in_features: int) -> dict[str, Tensor]:
        """Those tensors: stored so, or made of a weight in floats."""
        specs = self.params(out_features, in_features)
        if all(key == "weight" or layer.has(key) for key in specs):
            return {key: layer.tensor(key, spec.shape, spec.dtype) for key, spec in specs.items()}
        return self.quantize(layer.stored("weight", (out_features, in_features)))

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
