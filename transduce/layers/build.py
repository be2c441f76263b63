"""How a model is built and loaded in one go: a Builder asks the checkpoint for each tensor where the layer is made.

Owns Weights, Context and Builder. Knows no family and no file format: names are what a family's `rename` made of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from transduce.attention.base import AttentionBackend
from transduce.layers.embedding import Embedding, IntegerEmbedding
from transduce.layers.kv import KVSlot
from transduce.layers.norm import LayerNorm, RMSNorm
from transduce.quant.base import Activation, Epilogue, Linear, ParamSpec, RowsHint, Scheme
from transduce.quant.keep import Keep, SideBySide
from transduce.quant.none import Unquantized

DECODER_TILE = 64
"""Rows per kernel call on the decoder's side, where few rows are the rule; see RowsHint."""

DECODER_ROWS = RowsHint(DECODER_TILE)

ENCODER_TILE = 256
"""Rows per kernel call for linears that see encoder rows: the encoder's own, and cross-attention's K and V."""

T = TypeVar("T")


class Weights(Protocol):
    """A checkpoint's tensors by the model's names. A tensor that is neither got nor asked for is an unknown one."""

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor as stored, any float type, or int8 beside a `weight_scale`.

        CheckpointError where it is missing or of another shape.
        """

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds the tensor."""

    def whole(self, name: str) -> Tensor:
        """The tensor as stored, of any shape and type. CheckpointError where it is missing."""

    def generator(self, name: str) -> torch.Generator | None:
        """What a tensor of this name is drawn with; None: it is stored."""


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What a model is built for.

    kv: (group, layer) to that layer's place in the KV pool. keep: the layers that `scheme` does not hold for.
    """

    backend: AttentionBackend
    scheme: Scheme
    dtype: torch.dtype
    device: torch.device
    kv: Callable[[str, int], KVSlot]
    keep: Keep = field(default_factory=Keep)


@dataclass(frozen=True, slots=True, eq=False)
class Builder:
    """A scope of the checkpoint, such as "decoder.layers.0.", and what to build for.

    part: None, or 0 or 1: linear layers are the first or the second half of the stored ones' outputs.
    tables: those built so far, by name, for both sides of a model share theirs.
    """

    weights: Weights
    context: Context
    prefix: str = ""
    rows: RowsHint = DECODER_ROWS
    part: int | None = None
    tables: dict[str, tuple[Tensor, Tensor | None]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The layer whose scope this is."""
        return self.prefix.removesuffix(".")

    def at(self, scope: str) -> "Builder":
        """The scope below this one; dots in `scope` go deeper."""
        return replace(self, prefix=f"{self.prefix}{scope}.")

    def for_encoder_rows(self) -> "Builder":
        """The same scope for layers whose input is encoder rows."""
        return replace(self, rows=replace(self.rows, tile=ENCODER_TILE))

    def with_outliers(self) -> "Builder":
        """The same scope for a model whose activations hold values far beyond the others of their row."""
        return replace(self, rows=replace(self.rows, outliers=True))

    def half(self, part: int) -> "Builder":
        """The same scope for linear layers of which the checkpoint stores two as one; part: 0 or 1."""
        return replace(self, part=part)

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds the tensor."""
        return self.weights.has(self.prefix + name)

    def first(self, *names: str) -> str:
        """The first of several names for one table whose weight the checkpoint holds; names[0] where it holds none."""
        return next(iter([name for name in names if self.has(f"{name}.weight")]), names[0])

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """The tensor in the model's dtype unless another is given, on its device."""
        return self.weights.get(self.prefix + name, shape).to(self.context.device, dtype or self.context.dtype)

    def stored(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor as stored, any float type, on its device."""
        return self.weights.get(self.prefix + name, shape).to(self.context.device)

    def whole(self, name: str) -> Tensor:
        """The tensor as stored, of any shape and type, on its device."""
        return self.weights.whole(self.prefix + name).to(self.context.device)

    def generator(self, name: str) -> torch.Generator | None:
        """What the tensor is drawn with; None: it is stored."""
        return self.weights.generator(self.prefix + name)

    def embedding(self, name: str, rows: int, d: int, scale: float = 1.0) -> Embedding | IntegerEmbedding:
        """A table [rows, d] of tokens."""
        layer = self.prefix + name
        if layer not in self.tables:
            scheme = self._scheme(name) if self.context.scheme.tables else Unquantized()
            self.tables[layer] = scheme.table(scheme.load(self.at(name), rows, d))
        table, row_scale = self.tables[layer]
        if row_scale is None:
            return Embedding(table, scale)
        return IntegerEmbedding(table, row_scale * scale, self.context.dtype)

    def layer_norm(self, name: str, d: int, eps: float = 1e-5, bias: bool = True) -> LayerNorm:
        """LayerNorm with a weight; bias: whether the checkpoint has one."""
        return LayerNorm(self.tensor(f"{name}.weight", (d,)), self._one_bias(name, d, bias), eps)

    def rms_norm(self, name: str, d: int, eps: float) -> RMSNorm:
        """RMSNorm with a weight."""
        return RMSNorm(self.tensor(f"{name}.weight", (d,)), eps)

    def linear(
        self,
        names: str | tuple[str, ...],
        in_features: int,
        out_features: int | tuple[int, ...],
        bias: bool | tuple[bool, ...] | Tensor = True,
        activation: Activation | None = None,
        dtype: torch.dtype | None = None,
    ) -> Linear:
        """A linear layer; several names are fused into one, their outputs side by side in the order given.

        bias: whether each has one in the checkpoint, or the bias itself [out]. dtype: of the results; None: the
        model's.
        """
        parts = list(zip(_each(names), _each(out_features), strict=True))
        epilogue = Epilogue(dtype or self.context.dtype, self._bias(parts, bias), activation)
        layers = [self._alike(run, in_features, share) for run, share in self._runs(parts, epilogue)]
        return layers[0] if len(layers) == 1 else SideBySide(tuple(layers))

    def _runs(
        self, parts: Sequence[tuple[str, int]], epilogue: Epilogue
    ) -> Iterator[tuple[list[tuple[str, int]], Epilogue]]:
        """Neighbours of one scheme, and their share of the epilogue."""
        start = 0
        for _, run in groupby(parts, key=lambda part: self._scheme(part[0]) is self.context.scheme):
            alike = list(run)
            stop = start + sum(out for _, out in alike)
            yield alike, replace(epilogue, bias=None if epilogue.bias is None else epilogue.bias[start:stop])
            start = stop

    def _alike(self, parts: Sequence[tuple[str, int]], in_features: int, epilogue: Epilogue) -> Linear:
        scheme = self._scheme(parts[0][0])
        return scheme.prepare(self._fused(parts, in_features), epilogue, self.rows)

    def _fused(self, parts: Sequence[tuple[str, int]], in_features: int) -> dict[str, Tensor]:
        """The tensors of layers of one scheme."""
        scheme = self._scheme(parts[0][0])
        layers = [scheme.load(self.at(name), self._stored(out), in_features) for name, out in parts]
        specs = scheme.params(parts[0][1], in_features)
        return {
            key: _joined([self._own(layer[key], spec.out_dim) for layer in layers], spec) for key, spec in specs.items()
        }

    def _stored(self, out: int) -> int:
        """Outputs of the stored layer that this one with `out` is, or is half of."""
        return out if self.part is None else 2 * out

    def _own(self, tensor: Tensor, out_dim: int | None) -> Tensor:
        return tensor if self.part is None or out_dim is None else tensor.chunk(2, out_dim)[self.part]

    def _scheme(self, name: str) -> Scheme:
        """How the layer stores its weight."""
        scheme = self.context.scheme
        kept = self.context.keep.covers(self.prefix + name) or not scheme.holds(self.at(name))
        return Unquantized() if kept else scheme

    def _bias(self, parts: Sequence[tuple[str, int]], bias: bool | tuple[bool, ...] | Tensor) -> Tensor | None:
        if isinstance(bias, Tensor):
            return bias
        present = bias if isinstance(bias, tuple) else (bias,) * len(parts)
        if not any(present):
            return None
        each = [self._one_bias(name, self._stored(out), has) for (name, out), has in zip(parts, present, strict=True)]
        return torch.cat([self._own(bias, 0) for bias in each])

    def _one_bias(self, name: str, out: int, present: bool) -> Tensor:
        if present:
            return self.tensor(f"{name}.bias", (out,))
        return torch.zeros(out, dtype=self.context.dtype, device=self.context.device)


def _each(value: T | tuple[T, ...]) -> tuple[T, ...]:
    return value if isinstance(value, tuple) else (value,)


def _joined(tensors: list[Tensor], spec: ParamSpec) -> Tensor:
    """Fused layers' tensors: side by side along `out`, or the one they must agree on."""
    if spec.out_dim is None:
        assert all(torch.equal(tensors[0], other) for other in tensors[1:]), "fused layers share this tensor"
        return tensors[0]
    return torch.cat(tensors, spec.out_dim) if len(tensors) > 1 else tensors[0]
