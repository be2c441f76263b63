"""Attention by torch's CPU flash kernel: pages of equally shaped segments are gathered, then attended to at once.

Owns how segments are grouped. The kernel treats every (segment, head) alone, so a row's bits depend on the shape
of its segment (q_len, and kv blocks rounded up to a grid) and never on what else is in the batch.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.attention.base import Attend, Caps, Meta, Segments
from transduce.attention.pages import RowPages, store

MAX_BATCHED_QUERIES = 15
"""Longer segments run alone: with many queries the kernel may pack k and v, and judges that by the whole batch."""

GATHER_BYTES = 16 << 20
"""Pages gathered at once: the allocator maps larger buffers anew each time, which costs more than the copy."""

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class Sdpa(RowPages):
    """Torch's scaled dot product attention over gathered pages."""

    caps = Caps(
        name="sdpa",
        priority=10,
        devices=frozenset({"cpu"}),
        dtypes=frozenset({torch.float32, torch.bfloat16, torch.float16}),
        head_dims=range(1, 1025),
        bias=True,
        softcap=False,
        window=True,
        row_exact=False,
        graphs=True,
    )

    def plan(self, segments: Segments, out: Meta | None) -> Meta:
        """Meta is (queries [3, tokens]; shapes [segments, 2]; blocks [slabs, segments, max_blocks on the grid]).

        Segments stand in order of (q_len, kv_len), so that equal shapes are neighbours, and queries follow them.
        queries: row, position and kv_len of each. shapes: q_len and kv_len of each segment.
        """
        order = np.lexsort((segments.kv_len, segments.q_len))
        shapes = np.stack((segments.q_len, segments.kv_len), axis=1).astype(np.int64)[order]
        return store((_queries(segments, order), shapes, _padded(segments.blocks[order])), out)

    def read(
        self, q: Tensor, cache: Tensor, meta: Meta, slab: int, attend: Attend, lse: Tensor | None = None
    ) -> Tensor:
        queries, shapes, blocks = meta
        rows, positions, kv_len = queries.unbind()
        table = blocks[slab]
        out = q.new_zeros(q.shape)
        if lse is not None:
            lse.fill_(-torch.inf)
        for run in _runs(shapes.tolist(), cache):
            where = rows[run.rows]
            k, v = _gather(cache, table[run.segments, : run.width])
            run_q = q.index_select(0, where).unflatten(0, run.shape).transpose(1, 2)
            run_positions, run_kv_len = (t[run.rows].view(run.shape) for t in (positions, kv_len))
            mask = _mask(attend, run_positions, run_kv_len, k.shape[2])
            result, sums = _flash(run_q, k, v, attn_mask=mask, scale=attend.scale)
            out.index_copy_(0, where, result.transpose(1, 2).flatten(0, 1))
            if lse is not None:
                sums = sums.masked_fill(mask.isneginf().all(-1), -torch.inf)
                lse.index_copy_(0, where, sums.transpose(1, 2).flatten(0, 1))
        return out

    def varlen(self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], attend: Attend) -> Tensor:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        start = 0
        for length in filter(None, lengths):  # The kernel divides by the length.
            item = slice(start, start := start + length)
            item_q, item_k, item_v = (rows[item].transpose(0, 1)[None] for rows in (q, k, v))
            mask = _item_mask(attend, length)
            result, _ = _flash(item_q, item_k, item_v, attn_mask=mask, scale=attend.scale)
            out[item] = result[0].transpose(0, 1)
        return out


class _Run(NamedTuple):
    """Neighbouring segments of one shape [segments, q_len] that see `width` blocks, few enough to gather at once."""

    segments: slice
    rows: slice
    shape: tuple[int, int]
    width: int


def _runs(shapes: list[list[int]], cache: Tensor) -> Iterator[_Run]:
    """The runs that see anything."""
    block_size, block_bytes = cache.shape[1], cache[0].nbytes
    widths = ((q_len, _grid(-(-kv_len // block_size))) for q_len, kv_len in shapes)
    end = row = 0
    for (q_len, width), members in groupby(widths):
        first, end = end, end + len(list(members))
        if width == 0 or q_len == 0:
            row += (end - first) * q_len
            continue
        most = 1 if q_len > MAX_BATCHED_QUERIES else max(1, GATHER_BYTES // (width * block_bytes))
        for start in range(first, end, most):
            count = min(most, end - start)
            rows = slice(row, row := row + count * q_len)
            yield _Run(slice(start, start + count), rows, (count, q_len), width)


def _grid(blocks: int) -> int:
    """`blocks` rounded up, so that segments share few shapes: powers of two to 8, then four steps an octave."""
    step = 1 << max(0, (blocks - 1).bit_length() - (3 if blocks > 8 else 0))
    return -(-blocks // step) * step


def _gather(cache: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """k, v [segments, kv_heads, width * block_size, head_dim] of block ids [segments, width]."""
    rows = cache.index_select(0, table.flatten()).view(table.shape[0], -1, *cache.shape[2:])
    k, v = rows.transpose(1, 3).unbind(2)
    return k, v


def _queries(segments: Segments, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Row, position and kv_len of every query, by segments in this order: [3, tokens]."""
    q_len = segments.q_len[order]
    first_row = np.cumsum(segments.q_len) - segments.q_len
    firsts = np.stack((first_row, segments.q_pos, segments.kv_len)).astype(np.int64)[:, order]
    queries = np.repeat(firsts, q_len, axis=1)
    queries[:2] += np.arange(queries.shape[1]) - np.repeat(np.cumsum(q_len) - q_len, q_len)
    return queries


def _padded(blocks: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """[segments, max_blocks, slabs] to [slabs, segments, max_blocks on the grid]; block 0 fills up."""
    segments, most, slabs = blocks.shape
    padded = np.zeros((slabs, segments, _grid(most)), np.int64)
    padded[:, :, :most] = blocks.transpose(2, 0, 1)
    return padded


def _mask(attend: Attend, positions: Tensor, kv_len: Tensor, keys: int) -> Tensor:
    """What is added to the scores of queries [n, q_len]: fp32 [n, heads or 1, q_len, keys]."""
    key = torch.arange(keys)
    hidden = key >= (torch.minimum(kv_len, positions + 1) if attend.causal else kv_len)[:, None, :, None]
    if attend.window is not None:
        hidden = hidden | (key <= (positions - attend.window)[:, None, :, None])
    if attend.bias is None:
        return torch.zeros(hidden.shape, dtype=torch.float32).masked_fill_(hidden, -torch.inf)
    return _biases(attend.bias, positions, keys).masked_fill_(hidden, -torch.inf)


def _biases(bias: Tensor, positions: Tensor, keys: int) -> Tensor:
    """Attend.bias for queries at `positions` [n, q_len]: fp32 [n, heads, q_len, keys]."""
    reach = bias.shape[1] // 2
    column = (torch.arange(keys) - positions[:, :, None]).clamp(-reach, reach) + reach
    return bias.float().index_select(1, column.flatten()).view(-1, *column.shape).transpose(0, 1)


def _item_mask(attend: Attend, length: int) -> Tensor | None:
    """`_mask` of one whole item; None if every key is seen unchanged."""
    if attend.causal or attend.window is not None:
        return _mask(attend, torch.arange(length)[None], torch.tensor([[length]]), length)
    return None if attend.bias is None else _item_biases(attend.bias, length)


def _item_biases(bias: Tensor, length: int) -> Tensor:
    """`_biases` of one whole item: a query's row is a window on the biases by distance, one left of the last row's."""
    reach = bias.shape[1] // 2
    distances = torch.arange(1 - length, length).clamp(-reach, reach) + reach
    by_distance = bias.float().index_select(1, distances)
    return by_distance.unfold(1, length, 1).flip(1)[None]
