"""The contract of every backend, against a dense float64 computation and against `reference`."""

from collections.abc import Iterator

import pytest
import torch

from tests.attention.batches import (
    BLOCK_SIZE,
    CPU,
    TOLERANCE,
    Batch,
    Heads,
    Span,
    attends,
    batch,
    can,
    contenders,
    dense,
    slots,
)
from transduce.attention import named
from transduce.attention.base import Attend, AttentionBackend

HEADS = (Heads(4, 4, 32), Heads(2, 6, 64), Heads(1, 3, 80), Heads(2, 2, 256))
FEW_HEADS = HEADS[1:3]

# First token, cached steps, ragged tails, chunks, a whole prefill, nothing to see, several segments of one table.
SPANS = (
    Span(1, 0, 1, 0),
    Span(1, 39, 40, 1),
    Span(5, 12, 17, 2),
    Span(2, 3, 0, 3),
    Span(1, 149, 150, 4),
    Span(20, 0, 20, 5),
    Span(3, 20, 50, 6),
    Span(2, 23, 30, 6),
    Span(1, 15, 16, 7),
    Span(1, 200, 5, 8),
    Span(66, 14, 80, 9),
)
CONTENDERS = contenders()
each_backend = pytest.mark.parametrize("backend", CONTENDERS.values(), ids=CONTENDERS)


def cases() -> Iterator[object]:
    for contender, backend in CONTENDERS.items():
        for dtype in sorted(backend.caps.dtypes, key=str):
            for heads in HEADS if dtype == torch.float32 else FEW_HEADS:
                for name, attend in attends(heads).items():
                    if heads.head_dim in backend.caps.head_dims and can(backend.caps, attend):
                        label = f"{contender}-{dtype}-{'x'.join(map(str, heads))}-{name}"
                        yield pytest.param(backend, dtype, heads, attend, id=label)


each_case = pytest.mark.parametrize(("backend", "dtype", "heads", "attend"), list(cases()))


def close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(actual.double(), expected.double(), atol=tolerance, rtol=tolerance)


@each_case
def test_read_is_dense_attention(backend: AttentionBackend, dtype: torch.dtype, heads: Heads, attend: Attend) -> None:
    pages = batch(backend, SPANS, heads, dtype)
    out, lse = pages.read(backend, attend)
    expected, expected_lse = pages.dense(attend)
    assert out.dtype == dtype
    close(out, expected, dtype)
    close(lse, expected_lse, dtype)


@pytest.mark.long  # both are held against the dense answer above
@each_case
def test_read_agrees_with_reference(
    backend: AttentionBackend, dtype: torch.dtype, heads: Heads, attend: Attend
) -> None:
    reference = named("reference")
    out, lse = batch(backend, SPANS, heads, dtype).read(backend, attend)
    expected, expected_lse = batch(reference, SPANS, heads, dtype).read(reference, attend)
    close(out, expected, dtype)
    close(lse, expected_lse, dtype)


@each_case
def test_varlen_is_dense_attention(backend: AttentionBackend, dtype: torch.dtype, heads: Heads, attend: Attend) -> None:
    torch.manual_seed(0)
    lengths = (1, 17, 0, 64, 3)
    packed = torch.randn(sum(lengths), heads.heads + 2 * heads.kv_heads, heads.head_dim, dtype=dtype)
    q, k, v = packed.split((heads.heads, heads.kv_heads, heads.kv_heads), dim=1)
    out = backend.varlen(q, k, v, lengths, attend)
    items = zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
    close(out, torch.cat([dense(*item, 0, len(item[0]), attend)[0] for item in items]), dtype)
    assert out.shape == q.shape


@each_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_seeing_nothing_gives_exact_zeros(backend: AttentionBackend, dtype: torch.dtype) -> None:
    heads = Heads(2, 4, 64)
    spans = (Span(3, 5, 0, 0), Span(1, 9, 10, 1), Span(1, 0, 0, 2), Span(0, 0, 0, 2))
    for attend in (attends(heads)["causal"], attends(heads)["bias"]):
        out, lse = batch(backend, spans, heads, dtype).read(backend, attend)
        seeing = torch.tensor([False, False, False, True, False])
        assert out[~seeing].count_nonzero() == 0
        assert lse[~seeing].isneginf().all()
        assert lse[seeing].isfinite().all()
        assert out[seeing].count_nonzero() > 0


@each_backend
def test_stale_slots_do_not_show(backend: AttentionBackend) -> None:
    heads, attend = Heads(2, 4, 64), Attend(0.125, causal=True)
    pages = batch(backend, SPANS, heads, torch.float32)
    before, _ = pages.read(backend, attend)
    for span, blocks in zip(pages.spans, pages.segments.blocks[:, :, 0], strict=True):
        whole = slots(blocks.tolist(), len(blocks) * BLOCK_SIZE)
        stale = whole[len(pages.k[span.table]) :]
        junk = torch.full((len(stale), 2, 64), 1e4)
        backend.write(pages.cache, junk, junk, stale)
    after, _ = pages.read(backend, attend)
    assert torch.equal(before, after)


@each_backend
@pytest.mark.parametrize("slab", [0, 1, 2])
def test_each_slab_has_its_own_blocks(backend: AttentionBackend, slab: int) -> None:
    heads, attend = Heads(2, 4, 64), Attend(0.125, causal=True)
    pages = batch(backend, SPANS, heads, torch.float32, slabs=3, slab=slab)
    close(pages.read(backend, attend)[0], pages.dense(attend)[0], torch.float32)


def step(backend: AttentionBackend, seed: int) -> Batch:
    """One of several steps of the same bucket: 6 tokens, 4 segments, 3 blocks."""
    spans = {
        0: (Span(1, 0, 1, 0), Span(3, 30, 33, 1), Span(1, 39, 40, 2), Span(1, 0, 0, 3)),
        1: (Span(4, 40, 44, 0), Span(1, 7, 8, 1), Span(1, 0, 0, 2), Span(0, 0, 0, 2)),
        2: (Span(1, 20, 21, 0), Span(1, 21, 22, 1), Span(2, 0, 2, 2), Span(2, 31, 48, 3)),
    }[seed]
    return batch(backend, spans, Heads(2, 4, 32), torch.float32, seed=seed)


@each_backend
def test_plan_fills_out_in_place(backend: AttentionBackend) -> None:
    attend = Attend(0.2, causal=True)
    out = backend.plan(step(backend, 0).segments, None)
    pointers = [tensor.data_ptr() for tensor in out]
    for seed in (1, 2, 0):
        pages = step(backend, seed)
        again = backend.plan(pages.segments, out)
        assert [id(tensor) for tensor in again] == [id(tensor) for tensor in out]
        assert [tensor.data_ptr() for tensor in out] == pointers
        fresh = backend.plan(pages.segments, None)
        assert [(t.shape, t.dtype) for t in fresh] == [(t.shape, t.dtype) for t in out]
        result = backend.read(pages.q, pages.cache, out, 0, attend)
        close(result, pages.dense(attend)[0], torch.float32)


@each_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gather_returns_what_was_written(backend: AttentionBackend, dtype: torch.dtype) -> None:
    cache = backend.cache(9, 3, 40, BLOCK_SIZE, dtype, CPU)
    assert all(pages.count_nonzero() == 0 for pages in backend.gather(cache, range(9), 9 * BLOCK_SIZE))
    k, v = torch.randn(2, 37, 3, 40)
    order = torch.randperm(37)
    backend.write(cache, k[order], v[order], slots([5, 2, 7], 37)[order])
    for length in (37, 16, 1, 0):
        got_k, got_v = backend.gather(cache, [5, 2, 7][: -(-length // BLOCK_SIZE)], length)
        assert torch.equal(got_k, k[:length].to(dtype))
        assert torch.equal(got_v, v[:length].to(dtype))


@each_backend
def test_copies_read_all_sources_first(backend: AttentionBackend) -> None:
    caches = [backend.cache(6, 2, 72, BLOCK_SIZE, torch.float32, CPU) for _ in range(2)]
    written = torch.randn(2, 2, 6 * BLOCK_SIZE, 2, 72)
    for cache, (k, v) in zip(caches, written, strict=True):
        backend.write(cache, k, v, torch.arange(6 * BLOCK_SIZE))
    backend.copy(caches, [(1, 2), (2, 3), (3, 1), (4, 5)])
    backend.copy(caches, [])
    for cache, pages in zip(caches, written, strict=True):
        for got, rows in zip(backend.gather(cache, range(6), 6 * BLOCK_SIZE), pages, strict=True):
            assert torch.equal(got, rows.view(6, BLOCK_SIZE, 2, 72)[[0, 3, 1, 2, 4, 4]].flatten(0, 1))


@each_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_block_bytes_is_what_a_block_takes(backend: AttentionBackend, dtype: torch.dtype) -> None:
    cache = backend.cache(10, 3, 40, BLOCK_SIZE, dtype, CPU)
    assert 10 * backend.block_bytes(4, 3, 40, BLOCK_SIZE, dtype) == 4 * cache.nbytes
