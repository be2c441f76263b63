"""A decoder stack of two kinds of layers: most have self-attention, some in between gated cross-attention instead.

A token that sees no encoder row passes a layer of cross-attention unchanged. Knows no checkpoint's names.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from torch import Tensor

from transduce.attention.base import Attend
from transduce.layers.attention import CrossAttention, CrossKV, DecoderSelfAttention
from transduce.layers.build import Builder
from transduce.layers.norm import Norm
from transduce.layers.rotary import Rotary, Turn
from transduce.layers.step import StepInput
from transduce.stacks.style import FeedForward, GatedResidual, Residual, Style

ATTENTION_NORM, FEED_FORWARD_NORM = "attn_layer_norm", "final_layer_norm"


@dataclass(frozen=True, slots=True, eq=False)
class SelfLayer:
    """Self-attention and feed-forward, each in its residual."""

    attention: DecoderSelfAttention
    around_attention: Residual
    feed_forward: FeedForward
    around_feed_forward: Residual

    @classmethod
    def build(cls, b: Builder, style: Style, index: int) -> "SelfLayer":
        """index: among the layers of its kind."""
        attend, slot = Attend(style.scale, causal=True), b.context.kv("self", index)
        return cls(
            DecoderSelfAttention.build(b.at("self_attn"), style.head_shape, attend, slot),
            Residual.build(b, style, ATTENTION_NORM),
            FeedForward.build(b, style),
            Residual.build(b, style, FEED_FORWARD_NORM),
        )

    def __call__(self, x: Tensor, step: StepInput, turn: Turn | None) -> Tensor:
        """x [tokens, d] -> [tokens, d]."""
        x = self.around_attention(x, lambda rows, residual: self.attention(rows, step.groups["self"], residual, turn))
        return self.around_feed_forward(x, self.feed_forward)


@dataclass(frozen=True, slots=True, eq=False)
class CrossLayer:
    """Cross-attention, its queries and keys normed, and feed-forward, each in its gated residual."""

    attention: CrossAttention
    around_attention: GatedResidual
    feed_forward: FeedForward
    around_feed_forward: GatedResidual

    @classmethod
    def build(cls, b: Builder, style: Style, index: int) -> "CrossLayer":
        """index: among the layers of its kind."""
        at, shape = b.at("encoder_attn"), style.head_shape
        q_norm, k_norm = (at.rms_norm(name, style.head_dim, style.eps) for name in ("q_norm", "k_norm"))
        slot = b.context.kv("cross", index)
        return cls(
            CrossAttention.build(at, shape, Attend(style.scale), slot, (q_norm, k_norm)),
            GatedResidual.build(b, style, ATTENTION_NORM, "attn_gate"),
            FeedForward.build(b, style),
            GatedResidual.build(b, style, FEED_FORWARD_NORM, "ffn_gate"),
        )

    def __call__(self, x: Tensor, step: StepInput) -> Tensor:
        """x [tokens, d] -> [tokens, d]."""
        cross = step.groups["cross"]
        assert cross.sees is not None, "whoever fills a step says which tokens see encoder rows"
        sees = cross.sees
        x = self.around_attention(x, lambda rows, residual: self.attention(rows, cross, residual))
        return self.around_feed_forward(x, lambda rows, residual: sees * self.feed_forward(rows, residual))


@dataclass(frozen=True, slots=True, eq=False)
class InterleavedStack:
    """One step's tokens through all layers."""

    layers: tuple[SelfLayer | CrossLayer, ...]
    cross_kv: CrossKV
    norm: Norm | None
    rotary: Rotary

    @classmethod
    def build(cls, b: Builder, style: Style, crossing: Collection[int], rotary: Rotary) -> "InterleavedStack":
        """`b` at the stack's scope. crossing: which layers have cross-attention, at least one."""
        layers = tuple(_layers(b, style, crossing))
        crosses = {f"layers.{i}.encoder_attn": x.attention for i, x in enumerate(layers) if isinstance(x, CrossLayer)}
        return cls(layers, CrossKV.build(b, crosses), style.build_final_norm(b), rotary)

    def write_cross(self, encoded: Tensor, slots: Tensor) -> None:
        """Store the K and V of encoder rows [rows, d], of every layer that reads them, at slots [slabs, rows]."""
        self.cross_kv.write(encoded, slots)

    def __call__(self, x: Tensor, step: StepInput) -> Tensor:
        """x [tokens, d] -> [tokens, d]."""
        turn = self.rotary.at(step.positions)
        for layer in self.layers:
            x = layer(x, step) if isinstance(layer, CrossLayer) else layer(x, step, turn)
        return x if self.norm is None else self.norm(x)


def _layers(b: Builder, style: Style, crossing: Collection[int]) -> Iterator[SelfLayer | CrossLayer]:
    """Each with its number among those of its kind."""
    crossed = 0
    for i in range(style.layers):
        at = b.at(f"layers.{i}")
        if i in crossing:
            yield CrossLayer.build(at, style, crossed)
            crossed += 1
        else:
            yield SelfLayer.build(at, style, i - crossed)
