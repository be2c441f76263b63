"""The transformer encoder stack, in any Style."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from transduce.attention.base import Attend
from transduce.layers.attention import EncoderSelfAttention
from transduce.layers.build import Builder
from transduce.layers.norm import Norm
from transduce.layers.rotary import Rotary, Turn
from transduce.stacks.style import FeedForward, Residual, Style


@dataclass(frozen=True, slots=True, eq=False)
class EncoderLayer:
    """Self-attention and feed-forward, each in its residual."""

    attention: EncoderSelfAttention
    around_attention: Residual
    feed_forward: FeedForward
    around_feed_forward: Residual

    @classmethod
    def build(cls, b: Builder, style: Style, attend: Attend) -> "EncoderLayer":
        return cls(
            EncoderSelfAttention.build(b.at("self_attn"), style.head_shape, attend),
            Residual.build(b, style, "self_attn_layer_norm"),
            FeedForward.build(b, style),
            Residual.build(b, style, "final_layer_norm"),
        )

    def __call__(self, x: Tensor, lengths: Sequence[int], turn: Turn | None) -> Tensor:
        """x [rows, d] -> [rows, d]."""
        x = self.around_attention(x, lambda rows, residual: self.attention(rows, lengths, residual, turn))
        return self.around_feed_forward(x, self.feed_forward)


@dataclass(frozen=True, slots=True, eq=False)
class EncoderStack:
    """Packed items through all layers."""

    layers: tuple[EncoderLayer, ...]
    norm: Norm | None
    rotary: Rotary | None

    @classmethod
    def build(
        cls, b: Builder, style: Style, bias: Tensor | None = None, rotary: Rotary | None = None
    ) -> "EncoderStack":
        """`b` at the stack's scope. bias: relative position bias of every layer, as in `Attend`."""
        b = b.for_encoder_rows()
        attend = Attend(style.scale, bias=bias)
        layers = tuple(EncoderLayer.build(b.at(f"layers.{i}"), style, attend) for i in range(style.layers))
        return cls(layers, style.build_final_norm(b), rotary)

    def __call__(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """x [rows, d] -> [rows, d]; lengths: rows of each item."""
        turn = None if self.rotary is None else self.rotary.packed(lengths)
        for layer in self.layers:
            x = layer(x, lengths, turn)
        return x if self.norm is None else self.norm(x)
