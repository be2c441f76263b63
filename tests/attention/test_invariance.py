"""A row's bits do not depend on what else is in the batch; on row-exact backends, nor on how chunks are cut."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.attention.batches import Batch, Heads, Span, attends, batch, contenders
from tests.pairs import paired
from transduce.attention.base import Attend, AttentionBackend

CONTENDERS = contenders()
ROW_EXACT = {name: backend for name, backend in CONTENDERS.items() if backend.caps.row_exact}
each_backend = pytest.mark.parametrize("backend", CONTENDERS.values(), ids=CONTENDERS)
DTYPES = (torch.float32, torch.bfloat16)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
DECODING = paired(
    (Heads(4, 4, 32), Heads(6, 6, 64), Heads(2, 8, 128), Heads(3, 3, 20)), DTYPES, ("causal", "causal bias")
)
CHUNKS = paired((Heads(4, 4, 64), Heads(4, 4, 128)), DTYPES, ("plain", "causal"))


def random_spans(rng: np.random.Generator, count: int, chunks: Sequence[int]) -> list[Span]:
    """Segments at cached positions, some of which see nothing."""
    spans = []
    for table in range(count):
        q_len = int(rng.choice(chunks))
        q_pos = int(rng.integers(0, 200))
        spans.append(Span(q_len, q_pos, 0 if rng.random() < 0.1 else q_pos + q_len, table))
    return spans


def check_rows_are_alone(pages: Batch, backend: AttentionBackend, attend: Attend, rng: np.random.Generator) -> None:
    """Each segment alone gives the bits it has among all, and among some others in another order."""
    count = len(pages.spans)
    together = pages.read_only(backend, attend, range(count))
    for i in range(count):
        assert torch.equal(pages.read_only(backend, attend, [i])[0], together[i]), pages.spans[i]
    for _ in range(3):
        some = rng.permutation(count)[: rng.integers(1, count + 1)].tolist()
        for i, rows in zip(some, pages.read_only(backend, attend, some), strict=True):
            assert torch.equal(rows, together[i]), pages.spans[i]


@each_backend
@pytest.mark.parametrize(("heads", "dtype", "way"), DECODING, ids=str)
def test_decode_rows_are_alone(backend: AttentionBackend, dtype: torch.dtype, heads: Heads, way: str) -> None:
    rng = np.random.default_rng(3)
    for count in (2, 9, 64):
        pages = batch(backend, random_spans(rng, count, [1]), heads, dtype, seed=count)
        check_rows_are_alone(pages, backend, attends(heads)[way], rng)


@each_backend
@pytest.mark.parametrize(("heads", "dtype", "way"), CHUNKS, ids=str)
def test_chunk_rows_are_alone(backend: AttentionBackend, dtype: torch.dtype, heads: Heads, way: str) -> None:
    rng = np.random.default_rng(4)
    pages = batch(backend, random_spans(rng, 16, [1, 3, 15, 15, 16, 31, 31, 64]), heads, dtype)
    check_rows_are_alone(pages, backend, attends(heads)[way], rng)


@each_backend
@each_dtype
def test_large_chunks_are_alone(backend: AttentionBackend, dtype: torch.dtype) -> None:
    heads = Heads(4, 4, 64)
    spans = [Span(70, 150, 220, 0), Span(70, 150, 220, 1), Span(1, 219, 220, 2), Span(70, 140, 210, 3)]
    check_rows_are_alone(batch(backend, spans, heads, dtype), backend, Attend(0.125), np.random.default_rng(5))


@each_backend
@each_dtype
@pytest.mark.parametrize("way", ["plain", "bias", "causal window"])
def test_varlen_items_are_alone(backend: AttentionBackend, dtype: torch.dtype, way: str) -> None:
    torch.manual_seed(0)
    heads, lengths = Heads(3, 3, 40), (5, 1, 33, 64, 17, 2)
    q, k, v = torch.randn(3, sum(lengths), heads.heads, heads.head_dim, dtype=dtype)
    together = backend.varlen(q, k, v, lengths, attends(heads)[way]).split(lengths)
    items = zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
    for (item_q, item_k, item_v), rows in zip(items, together, strict=True):
        alone = backend.varlen(item_q.clone(), item_k.clone(), item_v.clone(), [len(rows)], attends(heads)[way])
        assert torch.equal(alone, rows)


@pytest.mark.parametrize("backend", ROW_EXACT.values(), ids=ROW_EXACT)
@each_dtype
@pytest.mark.parametrize("way", ["causal", "everything"])
def test_row_exact_backends_ignore_chunking(backend: AttentionBackend, dtype: torch.dtype, way: str) -> None:
    heads, length = Heads(2, 4, 64), 75
    whole = batch(backend, [Span(length, 0, length, 0)], heads, dtype)
    expected, _ = whole.read(backend, attends(heads)[way])
    for cuts in ([25, 50], [1, 2, 70], list(range(1, length))):
        edges = [0, *cuts, length]
        spans = [Span(end - start, start, end, 0) for start, end in pairwise(edges)]
        chunked = batch(backend, spans, heads, dtype)
        assert torch.equal(chunked.q, whole.q)
        assert torch.equal(chunked.read(backend, attends(heads)[way])[0], expected)
