"""Batches of paged attention with their float64 answer, for any backend: pages are filled through `write` alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.attention import backends
from transduce.attention.base import Attend, AttentionBackend, Caps, Segments
from transduce.attention.native import Native
from transduce.kernels.load import load, usable_levels

CPU = torch.device("cpu")
BLOCK_SIZE = 16
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def contenders() -> dict[str, AttentionBackend]:
    """Every backend by name; `native` at each instruction set that this CPU runs, the best of which is its own."""
    by_level = {f"native-{level}": Native(load(level)) for level in usable_levels()}
    return {backend.caps.name: backend for backend in backends() if backend.caps.name != "native"} | by_level


class Heads(NamedTuple):
    kv_heads: int
    heads: int
    head_dim: int


class Span(NamedTuple):
    """One segment to be; spans of one `table` read the same keys."""

    q_len: int
    q_pos: int
    kv_len: int
    table: int


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Segments with their queries [tokens, heads, head_dim] and pages; k, v [keys, kv_heads, head_dim] per table."""

    spans: tuple[Span, ...]
    segments: Segments
    q: Tensor
    cache: Tensor
    k: dict[int, Tensor]
    v: dict[int, Tensor]
    slab: int

    def rows(self) -> Iterator[tuple[Span, slice]]:
        """Each span with its query rows."""
        start = 0
        for span in self.spans:
            yield span, slice(start, start := start + span.q_len)

    def read(self, backend: AttentionBackend, attend: Attend) -> tuple[Tensor, Tensor]:
        """The backend's answer and lse, for all segments at once."""
        lse = torch.full(self.q.shape[:2], torch.nan)
        return backend.read(self.q, self.cache, backend.plan(self.segments, None), self.slab, attend, lse), lse

    def read_only(self, backend: AttentionBackend, attend: Attend, order: Sequence[int]) -> list[Tensor]:
        """The rows of some segments, which are read in this order and without the others."""
        picked = np.array(order)
        s = self.segments
        meta = backend.plan(
            Segments(s.q_len[picked], s.q_pos[picked], s.kv_len[picked], s.blocks[picked], s.table[picked]), None
        )
        parts = [self.q[rows] for _, rows in self.rows()]
        out = backend.read(torch.cat([parts[i] for i in order]), self.cache, meta, self.slab, attend)
        return list(out.split([len(parts[i]) for i in order]))

    def dense(self, attend: Attend) -> tuple[Tensor, Tensor]:
        """The float64 answer and lse."""
        results = [
            dense(self.q[rows], self.k[span.table], self.v[span.table], span.q_pos, span.kv_len, attend)
            for span, rows in self.rows()
        ]
        return torch.cat([out for out, _ in results]), torch.cat([lse for _, lse in results])


def batch(
    backend: AttentionBackend,
    spans: Sequence[Span],
    heads: Heads,
    dtype: torch.dtype,
    slabs: int = 1,
    slab: int = 0,
    seed: int = 0,
) -> Batch:
    """A batch over scattered pages whose other slots, block 0 and other slabs hold stale values."""
    torch.manual_seed(seed)
    lengths = {span.table: max(s.kv_len for s in spans if s.table == span.table) for span in spans}
    counts = {table: -(-length // BLOCK_SIZE) for table, length in lengths.items()}
    total = 1 + slabs * sum(counts.values())
    ids = iter((torch.randperm(total - 1) + 1).tolist())
    tables = {table: np.array([next(ids) for _ in range(n * slabs)]).reshape(n, slabs) for table, n in counts.items()}
    cache = backend.cache(total, heads.kv_heads, heads.head_dim, BLOCK_SIZE, dtype, CPU)
    stale = 3 * torch.randn(2, total * BLOCK_SIZE, heads.kv_heads, heads.head_dim, dtype=dtype)
    backend.write(cache, stale[0], stale[1], torch.arange(total * BLOCK_SIZE))
    k, v = {}, {}
    for table, length in lengths.items():
        k[table], v[table] = torch.randn(2, length, heads.kv_heads, heads.head_dim, dtype=dtype)
        backend.write(cache, k[table], v[table], slots(tables[table][:, slab].tolist(), length))
    q = torch.randn(sum(span.q_len for span in spans), heads.heads, heads.head_dim, dtype=dtype)
    return Batch(tuple(spans), _segments(spans, tables, slabs), q, cache, k, v, slab)


def slots(blocks: Sequence[int], length: int) -> Tensor:
    """Where the first `length` positions of a table of physical blocks live: [length]."""
    position = torch.arange(length)
    return torch.tensor(blocks, dtype=torch.int64)[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE


def _segments(
    spans: Sequence[Span], tables: dict[int, np.ndarray[tuple[int, int], np.dtype[np.int64]]], slabs: int
) -> Segments:
    blocks = np.zeros((len(spans), max(len(table) for table in tables.values()), slabs), np.int32)
    for row, span in zip(blocks, spans, strict=True):
        used = -(-span.kv_len // BLOCK_SIZE)
        row[:used] = tables[span.table][:used]
    q_len, q_pos, kv_len, table = np.array(spans, np.int32).T
    return Segments(q_len, q_pos, kv_len, blocks, table)


def dense(q: Tensor, k: Tensor, v: Tensor, q_pos: int, kv_len: int, attend: Attend) -> tuple[Tensor, Tensor]:
    """Textbook attention of q [queries, heads, head_dim] from position q_pos on over the first kv_len keys."""
    group = q.shape[1] // k.shape[1]
    keys, values = (rows[:kv_len].double().repeat_interleave(group, dim=1) for rows in (k, v))
    scores = attend.scale * torch.einsum("qhd,khd->qhk", q.double(), keys)
    distance = torch.arange(kv_len)[None] - torch.arange(q_pos, q_pos + len(q))[:, None]
    if attend.bias is not None:
        reach = attend.bias.shape[1] // 2
        for head, table in enumerate(attend.bias.double()):
            scores[:, head] += table[distance.clamp(-reach, reach) + reach]
    if attend.softcap is not None:
        scores = attend.softcap * torch.tanh(scores / attend.softcap)
    seen = torch.ones_like(distance, dtype=torch.bool)
    if attend.causal:
        seen &= distance <= 0
    if attend.window is not None:
        seen &= -distance < attend.window
    weights = scores.exp() * seen[:, None]
    total = weights.sum(-1)
    out = torch.einsum("qhk,khd->qhd", weights, values) / total.clamp(min=1e-300)[..., None]
    return out, total.log()


def attends(heads: Heads) -> dict[str, Attend]:
    """Ways to attend, by name."""
    scale = heads.head_dim**-0.5
    bias = torch.randn(heads.heads, 2 * 9 + 1, generator=torch.Generator().manual_seed(7))
    return {
        "plain": Attend(scale),
        "causal": Attend(scale, causal=True),
        "window": Attend(scale, window=7),
        "causal window": Attend(scale, causal=True, window=20),
        "bias": Attend(1.0 / heads.head_dim, bias=bias),
        "causal bias": Attend(1.0 / heads.head_dim, causal=True, bias=bias),
        "softcap": Attend(scale, causal=True, softcap=1.5),
        "everything": Attend(scale, causal=True, bias=bias, softcap=1.5, window=20),
    }


def can(caps: Caps, attend: Attend) -> bool:
    """Whether a backend claims this way to attend."""
    return (
        (caps.bias or attend.bias is None)
        and (caps.softcap or attend.softcap is None)
        and (caps.window or attend.window is None)
    )
