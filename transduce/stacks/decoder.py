"""The transformer decoder stack, in any Style: self-attention and cross-attention by pages."""

from dataclasses import dataclass

from torch import Tensor

from transduce.attention.base import Attend
from transduce.layers.attention import CrossAttention, DecoderSelfAttention
from transduce.layers.build import Builder
from transduce.layers.norm import Norm
from transduce.layers.step import StepInput
from transduce.stacks.style import FeedForward, Residual, Style


@dataclass(frozen=True, slots=True, eq=False)
class DecoderLayer:
    """Self-attention, cross-attention and feed-forward, each in its residual."""

    attention: DecoderSelfAttention
    around_attention: Residual
    cross: CrossAttention
    around_cross: Residual
    feed_forward: FeedForward
    around_feed_forward: Residual

    @classmethod
    def build(cls, b: Builder, style: Style, index: int, attend: Attend) -> "DecoderLayer":
        shape, kv = style.head_shape, b.context.kv
        return cls(
            DecoderSelfAttention.build(b.at("self_attn"), shape, attend, kv("self", index)),
            Residual.build(b, style, "self_attn_layer_norm"),
            CrossAttention.build(b.at("encoder_attn"), shape, Attend(style.scale), kv("cross", index)),
            Residual.build(b, style, "encoder_attn_layer_norm"),
            FeedForward.build(b, style),
            Residual.build(b, style, "final_layer_norm"),
        )

    def __call__(self, x: Tensor, step: StepInput) -> Tensor:
        """x [tokens, d] -> [tokens, d]."""
        x = self.around_attention(x, lambda rows: self.attention(rows, step.groups["self"]))
        x = self.around_cross(x, lambda rows: self.cross(rows, step.groups["cross"]))
        return self.around_feed_forward(x, self.feed_forward)


@dataclass(frozen=True, slots=True, eq=False)
class DecoderStack:
    """One step's tokens through all layers."""

    layers: tuple[DecoderLayer, ...]
    norm: Norm | None

    @classmethod
    def build(cls, b: Builder, style: Style, bias: Tensor | None = None) -> "DecoderStack":
        """`b` at the stack's scope. bias: relative position bias of every layer's self-attention, as in `Attend`."""
        attend = Attend(style.scale, causal=True, bias=bias)
        layers = tuple(DecoderLayer.build(b.at(f"layers.{i}"), style, i, attend) for i in range(style.layers))
        return cls(layers, style.build_final_norm(b))

    def write_cross(self, encoded: Tensor, slots: Tensor) -> None:
        """Store every layer's cross K and V of encoder rows [rows, d] at slots [slabs, rows]."""
        for layer in self.layers:
            layer.cross.write(encoded, slots)

    def __call__(self, x: Tensor, step: StepInput) -> Tensor:
        """x [tokens, d] -> [tokens, d]."""
        for layer in self.layers:
            x = layer(x, step)
        return x if self.norm is None else self.norm(x)
