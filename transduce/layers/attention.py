"""Attention layers: projections around an attention backend's kernels. They know no cache layout and no mask.

encoder rows ─> EncoderSelfAttention ─> encoder rows ─┬─> CrossKV, CrossAttention.write: into "cross" pages, once
                                                     (the decoder never sees encoder rows)
decoder rows ─> DecoderSelfAttention: K and V into "self" pages, read ─> CrossAttention: read ─> decoder rows
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.attention import ops
from transduce.attention.base import Attend, AttentionBackend
from transduce.layers.build import Builder
from transduce.layers.kv import KVSlot
from transduce.layers.norm import Norm
from transduce.layers.rotary import Turn
from transduce.layers.step import GroupStep
from transduce.quant.base import Linear

CROSS_ROWS = 256
"""Encoder rows whose K and V of all layers are made at once, and written while they are in the cache."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Projections d -> heads * head_dim for queries, kv_heads * head_dim for keys and for values, and back.

    Neighbouring query heads share a kv head. bias: in order q, k, v, out.
    """

    d: int
    heads: int
    kv_heads: int
    head_dim: int
    bias: tuple[bool, bool, bool, bool]

    @property
    def width(self) -> int:
        """heads * head_dim, which need not equal d."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """kv_heads * head_dim."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, eq=False)
class EncoderSelfAttention:
    """Every row attends to all rows of its item."""

    backend: AttentionBackend
    shape: HeadShape
    attend: Attend
    qkv: Linear
    out: Linear

    @classmethod
    def build(cls, b: Builder, shape: HeadShape, attend: Attend) -> "EncoderSelfAttention":
        return cls(b.context.backend, shape, attend, _qkv(b, shape), _out(b, shape))

    def __call__(self, x: Tensor, lengths: Sequence[int], residual: Tensor, turn: Turn | None) -> Tensor:
        """x [rows, d] -> [rows, d], plus residual [rows, d]; lengths: rows of each item. turn: of queries and keys."""
        q, k, v = _split(self.qkv(x), self.shape, turn)
        return self.out(self.backend.varlen(q, k, v, lengths, self.attend).flatten(1), plus=residual)


@dataclass(frozen=True, slots=True, eq=False)
class PaddedSelfAttention:
    """Rows of one item, padding behind: real rows attend to all of them, the padding to the real ones alone."""

    shape: HeadShape
    scale: float
    qkv: Linear
    out: Linear

    @classmethod
    def build(cls, b: Builder, shape: HeadShape, scale: float) -> "PaddedSelfAttention":
        return cls(shape, scale, _qkv(b, shape), _out(b, shape))

    def __call__(self, x: Tensor, real: int, residual: Tensor | None) -> Tensor:
        """x [rows, d] -> [rows, d], plus residual [rows, d]; real: how many rows are, below all of them."""
        q, k, v = (part.transpose(0, 1)[None] for part in _split(self.qkv(x), self.shape, None))
        kept = F.scaled_dot_product_attention(q[:, :, :real], k, v, scale=self.scale)
        padding = F.scaled_dot_product_attention(q[:, :, real:], k[:, :, :real], v[:, :, :real], scale=self.scale)
        return self.out(torch.cat((kept, padding), dim=2)[0].transpose(0, 1).flatten(1), plus=residual)


@dataclass(frozen=True, slots=True, eq=False)
class DecoderSelfAttention:
    """Every token attends to its sequence's tokens up to itself, by pages."""

    backend: AttentionBackend
    shape: HeadShape
    attend: Attend
    slot: KVSlot
    qkv: Linear
    out: Linear

    @classmethod
    def build(cls, b: Builder, shape: HeadShape, attend: Attend, slot: KVSlot) -> "DecoderSelfAttention":
        return cls(b.context.backend, shape, attend, slot, _qkv(b, shape), _out(b, shape))

    def __call__(self, x: Tensor, step: GroupStep, residual: Tensor, turn: Turn | None) -> Tensor:
        """x [tokens, d] -> [tokens, d], plus residual [tokens, d]; their K and V are stored at step.slots.

        turn: of queries and keys, which are stored turned.
        """
        assert step.slots is not None, "self-attention writes the step's K and V"
        q, k, v = _split(self.qkv(x), self.shape, turn)
        ops.write(self.backend, self.slot.cache, k, v, step.slots[self.slot.slab])
        read = ops.read(self.backend, q, self.slot.cache, step.meta, self.slot.slab, self.attend)
        return self.out(read.flatten(1), plus=residual)


@dataclass(frozen=True, slots=True, eq=False)
class CrossAttention:
    """Every token attends to the encoder rows it may see, by pages; tokens that see none get what a zero row gives.

    norms: of each head's queries and of its keys, where the model has them.
    """

    backend: AttentionBackend
    shape: HeadShape
    attend: Attend
    slot: KVSlot
    q: Linear
    out: Linear
    norms: tuple[Norm, Norm] | None

    @classmethod
    def build(
        cls, b: Builder, shape: HeadShape, attend: Attend, slot: KVSlot, norms: tuple[Norm, Norm] | None = None
    ) -> "CrossAttention":
        q = b.linear("q_proj", shape.d, shape.width, bias=shape.bias[0])
        return cls(b.context.backend, shape, attend, slot, q, _out(b, shape), norms)

    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Store k, v [rows, kv_heads, head_dim] of encoder rows at slots [slabs, rows]."""
        if self.norms is not None:
            k = _by_head(self.norms[1], k)
        ops.write(self.backend, self.slot.cache, k, v, slots[self.slot.slab])

    def __call__(self, x: Tensor, step: GroupStep, residual: Tensor | None) -> Tensor:
        """x [tokens, d] -> [tokens, d], plus residual [tokens, d]."""
        q = self.q(x).unflatten(1, (self.shape.heads, -1))
        if self.norms is not None:
            q = _by_head(self.norms[0], q)
        if step.queries is not None:
            step.queries.append(q)
        read = ops.read(self.backend, q, self.slot.cache, step.meta, self.slot.slab, self.attend)
        return self.out(read.flatten(1), plus=residual)

    def weights(self, q: Tensor, heads: Sequence[int], tables: Sequence[Sequence[int]], rows: int) -> Tensor:
        """What some heads of queries q [tokens, heads, head_dim] look at: float32 [some heads, tokens, rows].

        tables: a cross table's physical blocks, in each slab. rows: its first ones, over which a token's weights are 1.
        """
        k, _ = self.backend.gather(self.slot.cache, tables[self.slot.slab], rows)
        k = k[:, [head * self.shape.kv_heads // self.shape.heads for head in heads]]
        scores = torch.einsum("thd,rhd->htr", q[:, heads].float(), k.float())
        return (self.attend.scale * scores).softmax(-1)


@dataclass(frozen=True, slots=True, eq=False)
class CrossKV:
    """Cross-attention's K and V of all layers that have it, projected at once, a slice of rows at a time."""

    layers: tuple[CrossAttention, ...]
    linear: Linear

    @classmethod
    def build(cls, b: Builder, layers: Mapping[str, CrossAttention], d: int | None = None) -> "CrossKV":
        """layers: by their scopes below `b`. d: width of the encoder's rows; None: that of the decoder's."""
        shape = next(iter(layers.values())).shape
        names = tuple(f"{scope}.{name}" for scope in layers for name in ("k_proj", "v_proj"))
        linear = b.for_encoder_rows().linear(
            names, d or shape.d, (shape.kv_width,) * len(names), bias=shape.bias[1:3] * len(layers)
        )
        return cls(tuple(layers.values()), linear)

    def write(self, encoded: Tensor, slots: Tensor) -> None:
        """Store every layer's K and V of encoder rows [rows, d] at slots [slabs, rows]."""
        for start in range(0, len(encoded), CROSS_ROWS):
            rows = slice(start, start + CROSS_ROWS)
            for layer, (k, v) in zip(self.layers, self._projected(encoded[rows]), strict=True):
                layer.write(k, v, slots[:, rows])

    def _projected(self, encoded: Tensor) -> tuple[Tensor, ...]:
        """encoded [rows, d] to a view [2 (k, v), rows, kv_heads, head_dim] per layer."""
        shape = self.layers[0].shape
        kv = self.linear(encoded).unflatten(1, (-1, 2, shape.kv_heads, shape.head_dim))
        layers: tuple[Tensor, ...] = kv.permute(1, 2, 0, 3, 4).unbind()
        return layers


def _qkv(b: Builder, shape: HeadShape) -> Linear:
    names = ("q_proj", "k_proj", "v_proj")
    return b.linear(names, shape.d, (shape.width, shape.kv_width, shape.kv_width), bias=shape.bias[:3])


def _out(b: Builder, shape: HeadShape) -> Linear:
    return b.linear("out_proj", shape.width, shape.d, bias=shape.bias[3])


def _split(qkv: Tensor, shape: HeadShape, turn: Turn | None) -> tuple[Tensor, Tensor, Tensor]:
    """[rows, projections] to queries [rows, heads, head_dim], keys and values [rows, kv_heads, head_dim]."""
    qk, v = qkv.unflatten(1, (-1, shape.head_dim)).tensor_split((shape.heads + shape.kv_heads,), dim=1)
    q, k = (qk if turn is None else turn(qk)).tensor_split((shape.heads,), dim=1)
    return q, k, v


def _by_head(norm: Norm, x: Tensor) -> Tensor:
    """x [rows, heads, head_dim], each head normed by itself."""
    return norm(x.flatten(0, 1)).view(x.shape)
