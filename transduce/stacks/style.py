"""What a stack of transformer layers looks like, and the parts encoder and decoder layers have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from transduce.layers.attention import HeadShape
from transduce.layers.build import Builder
from transduce.layers.norm import Norm
from transduce.quant.base import Activation, Linear


@dataclass(frozen=True, slots=True)
class Style:
    """Shape and style of one stack.

    kv_heads: of keys and values; None: as many as heads. scale: multiplies query · key. bias: whether feed-forward
    linears have one. attention_bias: of q, k, v and out.
    pre_norm: norms stand before each sublayer and after the last layer, else after each sublayer's residual.
    norm_bias: of layer norms. gated: activation(gate(x)) * fc1(x) instead of activation(fc1(x)). gate_within: the
    checkpoint has both as one fc1, the gate's outputs last. encoded: width of the encoder rows that a decoder reads;
    None: d.
    """

    layers: int
    d: int
    heads: int
    head_dim: int
    ffn: int
    activation: Activation
    scale: float
    pre_norm: bool
    norm: Literal["layer", "rms"] = "layer"
    eps: float = 1e-5
    bias: bool = True
    kv_heads: int | None = None
    attention_bias: tuple[bool, bool, bool, bool] = (True, True, True, True)
    norm_bias: bool = True
    gated: bool = False
    gate_within: bool = False
    encoded: int | None = None

    @property
    def head_shape(self) -> HeadShape:
        """The attention layers' projections."""
        return HeadShape(self.d, self.heads, self.kv_heads or self.heads, self.head_dim, self.attention_bias)

    def build_norm(self, b: Builder, name: str) -> Norm:
        """The stack's kind of norm."""
        if self.norm == "rms":
            return b.rms_norm(name, self.d, self.eps)
        return b.layer_norm(name, self.d, self.eps, self.norm_bias)

    def build_final_norm(self, b: Builder) -> Norm | None:
        """The norm after the last layer, where there is one."""
        return self.build_norm(b, "layer_norm") if self.pre_norm else None


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The residual connection around a sublayer, with its norm before or after."""

    norm: Norm
    pre_norm: bool

    @classmethod
    def build(cls, b: Builder, style: Style, name: str) -> "Residual":
        return cls(style.build_norm(b, name), style.pre_norm)

    def __call__(self, x: Tensor, sublayer: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """x [rows, d] -> [rows, d]; sublayer(rows, residual) adds the residual itself, in its last linear layer."""
        return sublayer(self.norm(x), x) if self.pre_norm else self.norm(sublayer(x, x))


@dataclass(frozen=True, slots=True, eq=False)
class GatedResidual:
    """The residual connection around a sublayer behind its norm, of which it takes as much as the model has learnt.

    gate: [1], below 1 either way.
    """

    norm: Norm
    gate: Tensor

    @classmethod
    def build(cls, b: Builder, style: Style, name: str, gate: str) -> "GatedResidual":
        """gate: the name of the checkpoint's number, whose tanh counts."""
        return cls(style.build_norm(b, name), b.tensor(gate, (1,)).tanh())

    def __call__(self, x: Tensor, sublayer: Callable[[Tensor, None], Tensor]) -> Tensor:
        """x [rows, d] -> [rows, d]; sublayer(rows, None) is without the residual."""
        return x + self.gate * sublayer(self.norm(x), None)


@dataclass(frozen=True, slots=True, eq=False)
class FeedForward:
    """fc2(activation(fc1(x))), or gated."""

    fc1: Linear
    fc2: Linear
    gate: Linear | None

    @classmethod
    def build(cls, b: Builder, style: Style) -> "FeedForward":
        fc2 = b.linear("fc2", style.ffn, style.d, bias=style.bias)
        if not style.gated:
            return cls(_widening(b, style, "fc1", style.activation), fc2, None)
        linear, gate, name = (b.half(0), b.half(1), "fc1") if style.gate_within else (b, b, "gate")
        return cls(_widening(linear, style, "fc1", None), fc2, _widening(gate, style, name, style.activation))

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        """x [rows, d] -> [rows, d], plus residual [rows, d]."""
        gates = None if self.gate is None else self.gate(x)
        return self.fc2(self.fc1(x, times=gates), plus=residual)


def _widening(b: Builder, style: Style, name: str, activation: Activation | None) -> Linear:
    return b.linear(name, style.d, style.ffn, bias=style.bias, activation=activation)
