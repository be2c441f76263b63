"""Attention layers: projections around an attention backend's kernels. They know no cache layout and no mask.

encoder rows ─> EncoderSelfAttention ─> encoder rows ─┬─> CrossKV, CrossAttention.write: into "cross" pages, once
                                                     (the decoder never sees encoder rows)
decoder rows ─> DecoderSelfAttention: K and V into "self" pages, read ─> CrossAttention: read ─> decoder rows
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.attention import ops
from transduce.attention.base import Attend, AttentionBackend
from transduce.layers.build import Builder
from transduce.layers.kv import KVSlot
from transduce.layers.rotary import Turn
from transduce.layers.step import GroupStep
from transduce.quant.base import Linear


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Projections d -> heads * head_dim for queries, keys and values, and back. bias: in order q, k, v, out."""

    d: int
    heads: int
    head_dim: int
    bias: tuple[bool, bool, bool, bool]

    @property
    def width(self) -> int:
        """heads * head_dim, which need not equal d."""
        return self.heads * self.head_dim


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
        q, k, v = _turned(self.qkv(x), self.shape.heads, turn)
        return self.out(self.backend.varlen(q, k, v, lengths, self.attend).flatten(1), plus=residual)


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
        q, k, v = _turned(self.qkv(x), self.shape.heads, turn)
        ops.write(self.backend, self.slot.cache, k, v, step.slots[self.slot.slab])
        read = ops.read(self.backend, q, self.slot.cache, step.meta, self.slot.slab, self.attend)
        return self.out(read.flatten(1), plus=residual)


@dataclass(frozen=True, slots=True, eq=False)
class CrossAttention:
    """Every token attends to the encoder rows it may see, by pages; tokens that see none get what a zero row gives."""

    backend: AttentionBackend
    shape: HeadShape
    attend: Attend
    slot: KVSlot
    q: Linear
    out: Linear

    @classmethod
    def build(cls, b: Builder, shape: HeadShape, attend: Attend, slot: KVSlot) -> "CrossAttention":
        q = b.linear("q_proj", shape.d, shape.width, bias=shape.bias[0])
        return cls(b.context.backend, shape, attend, slot, q, _out(b, shape))

    def write(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Store k, v [rows, heads, head_dim] of encoder rows at slots [slabs, rows]."""
        ops.write(self.backend, self.slot.cache, k, v, slots[self.slot.slab])

    def __call__(self, x: Tensor, step: GroupStep, residual: Tensor) -> Tensor:
        """x [tokens, d] -> [tokens, d], plus residual [tokens, d]."""
        q = self.q(x).unflatten(1, (self.shape.heads, -1))
        if step.queries is not None:
            step.queries.append(q)
        read = ops.read(self.backend, q, self.slot.cache, step.meta, self.slot.slab, self.attend)
        return self.out(read.flatten(1), plus=residual)

    def weights(self, q: Tensor, heads: Sequence[int], tables: Sequence[Sequence[int]], rows: int) -> Tensor:
        """What some heads of queries q [tokens, heads, head_dim] look at: float32 [some heads, tokens, rows].

        tables: a cross table's physical blocks, in each slab. rows: its first ones, over which a token's weights are 1.
        """
        k, _ = self.backend.gather(self.slot.cache, tables[self.slot.slab], rows)
        scores = torch.einsum("thd,rhd->htr", q[:, heads].float(), k[:, heads].float())
        return (self.attend.scale * scores).softmax(-1)


@dataclass(frozen=True, slots=True, eq=False)
class CrossKV:
    """Cross-attention's K and V of all decoder layers, projected at once."""

    shape: HeadShape
    linear: Linear

    @classmethod
    def build(cls, b: Builder, shape: HeadShape, scopes: Sequence[str]) -> "CrossKV":
        """scopes: each layer's cross-attention, below `b`."""
        names = tuple(f"{scope}.{name}" for scope in scopes for name in ("k_proj", "v_proj"))
        linear = b.for_encoder_rows().linear(
            names, shape.d, (shape.width,) * len(names), bias=shape.bias[1:3] * len(scopes)
        )
        return cls(shape, linear)

    def __call__(self, encoded: Tensor) -> tuple[Tensor, ...]:
        """encoded [rows, d] to a view [2 (k, v), rows, heads, head_dim] per layer."""
        kv = self.linear(encoded).unflatten(1, (-1, 2, self.shape.heads, self.shape.head_dim))
        layers: tuple[Tensor, ...] = kv.permute(1, 2, 0, 3, 4).unbind()
        return layers


def _qkv(b: Builder, shape: HeadShape) -> Linear:
    names = ("q_proj", "k_proj", "v_proj")
    return b.linear(names, shape.d, (shape.width,) * 3, bias=shape.bias[:3])


def _out(b: Builder, shape: HeadShape) -> Linear:
    return b.linear("out_proj", shape.width, shape.d, bias=shape.bias[3])


def _turned(qkv: Tensor, heads: int, turn: Turn | None) -> tuple[Tensor, Tensor, Tensor]:
    """[rows, 3 * heads * head_dim] to queries, keys and values [rows, heads, head_dim]."""
    parts = qkv.unflatten(1, (3, heads, -1))
    q, k = (parts[:, :2] if turn is None else turn(parts[:, :2])).unbind(1)
    return q, k, parts[:, 2]
