"""The transformer decoder stack, in any Style: self-attention and cross-attention by pages."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.attention.base import Attend
from transduce.layers.attention import CrossAttention, CrossKV, DecoderSelfAttention
from transduce.layers.build import Builder
from transduce.layers.norm import Norm
from transduce.layers.rotary import Rotary, Turn
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

    def __call__(self, x: Tensor, step: StepInput, turn: Turn | None) -> Tensor:
        """x [tokens, d] -> [tokens, d]."""
        x = self.around_attention(x, lambda rows, residual: self.attention(rows, step.groups["self"], residual, turn))
        x = self.around_cross(x, lambda rows, residual: self.cross(rows, step.groups["cross"], residual))
        return self.around_feed_forward(x, self.feed_forward)


@dataclass(frozen=True, slots=True, eq=False)
class DecoderStack:
    """One step's tokens through all layers."""

    layers: tuple[DecoderLayer, ...]
    cross_kv: CrossKV
    norm: Norm | None
    rotary: Rotary | None

    @classmethod
    def build(
        cls, b: Builder, style: Style, bias: Tensor | None = None, rotary: Rotary | None = None
    ) -> "DecoderStack":
        """`b` at the stack's scope. bias: relative position bias of every layer's self-attention, as in `Attend`."""
        attend = Attend(style.scale, causal=True, bias=bias)
        scopes = [f"layers.{i}" for i in range(style.layers)]
        layers = tuple(DecoderLayer.build(b.at(scope), style, i, attend) for i, scope in enumerate(scopes))
        crosses = {f"{scope}.encoder_attn": layer.cross for scope, layer in zip(scopes, layers, strict=True)}
        return cls(layers, CrossKV.build(b, crosses, style.encoded), style.build_final_norm(b), rotary)

    def write_cross(self, encoded: Tensor, slots: Tensor) -> None:
        """Store every layer's cross K and V of encoder rows [rows, d] at slots [slabs, rows]."""
        self.cross_kv.write(encoded, slots)

    def attention(
        self, queries: Sequence[Tensor], heads: Sequence[tuple[int, int]], tables: Sequence[Sequence[int]], rows: int
    ) -> Tensor:
        """As Model.attention; queries: every layer's."""
        chosen = {layer: [head for at, head in heads if at == layer] for layer, _ in heads}
        layers = ((self.layers[layer].cross, queries[layer], of) for layer, of in chosen.items())
        return torch.cat([cross.weights(q, of, tables, rows) for cross, q, of in layers])

    def __call__(self, x: Tensor, step: StepInput) -> Tensor:
        """x [tokens, d] -> [tokens, d]."""
        turn = None if self.rotary is None else self.rotary.at(step.positions)
        for layer in self.layers:
            x = layer(x, step, turn)
        return x if self.norm is None else self.norm(x)
