"""The reference backend: every query row by itself, in fp32, over exactly the keys it sees, in page order.

Owns what is right, and is slow. A row's bits depend on its query and its keys alone: not on its chunk, nor on its
neighbours.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transduce.attention.base import Attend, Caps, Meta, Segments
from transduce.attention.pages import RowPages, store


class Reference(RowPages):
    """Plain attention, one query row at a time."""

    caps = Caps(
        name="reference",
        priority=0,
        devices=frozenset({"cpu"}),
        dtypes=frozenset({torch.float32, torch.bfloat16, torch.float16}),
        head_dims=range(1, 1025),
        bias=True,
        softcap=True,
        window=True,
        row_exact=True,
        graphs=True,
    )

    def plan(self, segments: Segments, out: Meta | None) -> Meta:
        """Meta is (shapes [segments, 3]: q_len, q_pos, kv_len; blocks [slabs, segments, max_blocks])."""
        shapes = np.stack((segments.q_len, segments.q_pos, segments.kv_len), axis=1).astype(np.int64)
        return store((shapes, segments.blocks.transpose(2, 0, 1).astype(np.int64)), out)

    def read(
        self, q: Tensor, cache: Tensor, meta: Meta, slab: int, attend: Attend, lse: Tensor | None = None
    ) -> Tensor:
        shapes, blocks = meta
        out = q.new_zeros(q.shape)
        if lse is not None:
            lse.fill_(-torch.inf)
        row = 0
        for (q_len, q_pos, kv_len), table in zip(shapes.tolist(), blocks[slab].tolist(), strict=True):
            k, v = self.gather(cache, table[: -(-kv_len // cache.shape[1])], kv_len)
            for position in range(q_pos, q_pos + q_len):
                out[row], row_lse = _attend(q[row], k, v, position, attend)
                if lse is not None:
                    lse[row] = row_lse
                row += 1
        return out

    def varlen(self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], attend: Attend) -> Tensor:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        start = 0
        for length in lengths:
            # Cloned, since a matmul's bits may depend on how its operands are aligned.
            item_k, item_v = (rows[start : start + length].clone() for rows in (k, v))
            for position in range(length):
                out[start + position], _ = _attend(q[start + position], item_k, item_v, position, attend)
            start += length
        return out


def _attend(q: Tensor, k: Tensor, v: Tensor, position: int, attend: Attend) -> tuple[Tensor, Tensor]:
    """Query q [heads, head_dim] at `position` over k, v [keys, kv_heads, head_dim]: [heads, head_dim], lse [heads]."""
    first = 0 if attend.window is None else max(0, position - attend.window + 1)
    end = min(k.shape[0], position + 1) if attend.causal else k.shape[0]
    if first >= end:
        return torch.zeros_like(q), q.new_full(q.shape[:1], -torch.inf, dtype=torch.float32)
    kv_heads = k.shape[1]
    grouped = q.float().unflatten(0, (kv_heads, -1))
    scores = attend.scale * torch.einsum("hgd,khd->hgk", grouped, k[first:end].float()).flatten(0, 1)
    if attend.bias is not None:
        reach = attend.bias.shape[1] // 2
        distance = torch.arange(first, end) - position
        scores = scores + attend.bias[:, distance.clamp(-reach, reach) + reach].float()
    if attend.softcap is not None:
        scores = attend.softcap * torch.tanh(scores / attend.softcap)
    lse = scores.logsumexp(-1)
    weights = (scores - lse[:, None]).exp().unflatten(0, (kv_heads, -1))
    return torch.einsum("hgk,khd->hgd", weights, v[first:end].float()).flatten(0, 1), lse
