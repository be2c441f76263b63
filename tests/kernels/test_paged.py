"""The paged kernels against dense attention, at every level that this CPU runs: shapes, layout, what must not show."""

from collections.abc import Iterator
from ctypes import CDLL
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.attention.batches import TOLERANCE, dense
from tests.pairs import paired
from transduce.attention.base import Attend
from transduce.kernels import load, paged

FLOATS = (torch.float32, torch.bfloat16)
each_dtype = pytest.mark.parametrize(
    ("dtype", "pages"), [*zip(FLOATS, FLOATS, strict=True), *((dtype, torch.int8) for dtype in FLOATS)], ids=str
)


@pytest.fixture(params=load.usable_levels())
def library(request: pytest.FixtureRequest) -> CDLL:
    return load.load(request.param)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class Case:
    """One run per (rows, first position, kv_len), each with its own block table."""

    kv_heads: int
    group: int
    head_dim: int
    block_size: int
    runs: tuple[tuple[int, int, int], ...]
    attend: Attend

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group


def filled(blocks: int, shape: tuple[int, int, int], dtype: torch.dtype, value: float) -> Tensor:
    """Pages of (kv_heads, head_dim, block_size) in which every number is `value`; of bytes, every scale."""
    pages = torch.empty(blocks, *paged.block_shape(*shape, dtype), dtype=dtype)
    if dtype == torch.int8:
        pages.fill_(77)
        flat = pages.flatten(3)
        flat[..., shape[1] * shape[2] :] = torch.full((*flat.shape[:3], shape[2]), value).view(torch.int8)
    else:
        pages.fill_(value)
    return pages


class Pool:
    """Scattered pages in which all that was not written is `stale`; k, v [keys, kv_heads, head_dim] per run."""

    def __init__(self, library: CDLL, case: Case, dtype: torch.dtype, pages: torch.dtype, stale: float) -> None:
        self.library, self.case = library, case
        size = case.block_size
        counts = [-(-kv_len // size) for _, _, kv_len in case.runs]
        ids = iter((torch.randperm(sum(counts)) + 1).tolist())
        self.blocks = torch.zeros(len(counts), max(1, *counts), dtype=torch.int32)
        self.pages = filled(sum(counts) + 1, (case.kv_heads, case.head_dim, size), pages, stale)
        self.k, self.v = [], []
        for row, count, (_, _, kv_len) in zip(self.blocks, counts, case.runs, strict=True):
            row[:count] = torch.tensor([next(ids) for _ in range(count)])
            position = torch.arange(kv_len)
            slots = row.long()[position // size] * size + position % size
            k, v = torch.randn(kv_len, 2 * case.kv_heads, case.head_dim, dtype=dtype).chunk(2, dim=1)
            paged.write(library, self.pages, k, v, slots)
            kept = [rows.flatten(0, 1)[slots] for rows in paged.rows(self.pages)]
            for written, held in zip((k, v), kept, strict=True):
                assert_kept(held, written, pages)
            self.k.append(kept[0])
            self.v.append(kept[1])
        rows = sum(rows for rows, _, _ in case.runs)
        self.q = torch.randn(rows, case.heads + 3, case.head_dim, dtype=dtype)[:, 1:-2]

    def read(self) -> tuple[Tensor, Tensor]:
        runs, positions, first = [], np.zeros(0, np.int32), 0
        for segment, (rows, position, kv_len) in enumerate(self.case.runs):
            runs.append((first, rows, kv_len, segment))
            positions = np.concatenate([positions, position + np.arange(rows, dtype=np.int32)])
            first += rows
        table = torch.tensor(runs, dtype=torch.int32).T.contiguous()
        reading = paged.Reading(table, torch.from_numpy(positions), self.blocks)
        lse = torch.full(self.q.shape[:2], torch.nan)
        how = self.case.attend
        scoring = paged.Scoring(how.scale, how.causal, how.bias, how.softcap or 0.0, how.window or 0)
        return paged.read(self.library, self.q, self.pages, reading, scoring, lse), lse

    def dense(self) -> tuple[Tensor, Tensor]:
        parts = self.q.split([rows for rows, _, _ in self.case.runs])
        answers = [
            dense(q, k, v, position, kv_len, self.case.attend)
            for q, k, v, (_, position, kv_len) in zip(parts, self.k, self.v, self.case.runs, strict=True)
        ]
        return torch.cat([out for out, _ in answers]), torch.cat([lse for _, lse in answers])


def assert_kept(kept: Tensor, written: Tensor, pages: torch.dtype) -> None:
    """Rows [tokens, kv_heads, head_dim] are what was written, or in bytes within half of a unit."""
    if pages == torch.int8:
        unit = written.float().abs().amax(-1, keepdim=True) / 127
        assert ((kept - written.float()).abs() <= 0.501 * unit).all()
    else:
        assert torch.equal(kept, written.to(pages))


def tolerance(dtype: torch.dtype, pages: torch.dtype) -> float:
    """Of an answer; queries and weights have 16 bits beside pages of bytes."""
    if dtype == torch.bfloat16:
        return 8e-3
    return 5e-4 if pages == torch.int8 else TOLERANCE[dtype]


def random_case(seed: int, word: int) -> Case:
    rng = np.random.default_rng(seed)
    kv_heads, group = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3, 5]))
    head_dim = max(word, int(rng.choice([2, 8, 16, 20, 32, 46, 64, 80, 96, 112, 128, 200, 256])) // word * word)
    runs: list[tuple[int, int, int]] = []
    for kv_len in (0, 1, *rng.integers(2, 90, 3)):
        rows = int(rng.integers(1, 12))
        position = max(0, int(kv_len) - rows) if rng.random() < 0.5 else int(rng.integers(0, 3000))
        runs.append((rows, position, int(kv_len)))
    reach = int(rng.choice([0, 1, 40, 300]))
    bias = torch.randn(kv_heads * group, 2 * reach + 1) if rng.random() < 0.6 else None
    attend = Attend(
        head_dim**-0.5,
        causal=rng.random() < 0.5,
        bias=bias,
        softcap=1.5 if rng.random() < 0.3 else None,
        window=int(rng.integers(1, 40)) if rng.random() < 0.4 else None,
    )
    block_size = max(word, int(rng.choice([2, 4, 6, 16, 20, 32, 48])) // word * word)
    return Case(kv_heads, group, head_dim, block_size, tuple(runs), attend)


@pytest.mark.parametrize("seed", range(40))
@each_dtype
def test_read_is_dense_attention(library: CDLL, dtype: torch.dtype, pages: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    pool = Pool(library, random_case(seed, paged.WORD[pages]), dtype, pages, stale=torch.nan)
    out, lse = pool.read()
    wanted, wanted_lse = pool.dense()
    close = tolerance(dtype, pages)
    torch.testing.assert_close(out.double(), wanted, atol=close, rtol=close)
    close = 1e-3 if pages == torch.int8 else 1e-4
    torch.testing.assert_close(lse.double(), wanted_lse, atol=close, rtol=close)


@pytest.mark.parametrize("seed", range(8))
@each_dtype
def test_stale_values_do_not_show(library: CDLL, dtype: torch.dtype, pages: torch.dtype, seed: int) -> None:
    answers = []
    for stale in (0.0, torch.nan, torch.inf, -torch.inf):
        torch.manual_seed(seed)
        answers.append(Pool(library, random_case(seed, paged.WORD[pages]), dtype, pages, stale).read())
    for out, lse in answers[1:]:
        assert torch.equal(out, answers[0][0])
        assert torch.equal(lse, answers[0][1])


CHUNK = Case(2, 2, 64, 16, ((10, 23, 33),), Attend(0.125, causal=True, window=9))


@each_dtype
@pytest.mark.parametrize(("key", "value"), [(torch.nan, 1.0), (1.0, torch.inf)])
@pytest.mark.parametrize("token", [27, 28])
def test_only_those_who_see_a_token_suffer_from_it(
    library: CDLL, dtype: torch.dtype, pages: torch.dtype, key: float, value: float, token: int
) -> None:
    torch.manual_seed(0)
    pool = Pool(library, CHUNK, dtype, pages, stale=0.0)
    before, _ = pool.read()
    slot = pool.blocks[0, token // 16].long() * 16 + token % 16
    k, v = (torch.full((1, 2, 64), each) for each in (key, value))
    paged.write(library, pool.pages, k, v, slot[None])
    after, _ = pool.read()
    position = 23 + torch.arange(10)
    sees = (token <= position) & (position - token < 9)
    assert torch.equal(after[~sees], before[~sees])
    assert not after[sees].isfinite().any()


@each_dtype
def test_threads_share_the_work_and_change_nothing(
    library: CDLL, dtype: torch.dtype, pages: torch.dtype, threads: int
) -> None:
    assert torch.get_num_threads() == threads
    torch.manual_seed(0)
    runs = ((70, 430, 500), (1, 999, 1000), (1, 40, 0), (1, 3, 4))
    case = Case(1, 6, 64, 16, runs, Attend(0.125, causal=True))
    pool = Pool(library, case, dtype, pages, stale=torch.nan)
    out, _ = pool.read()
    close = tolerance(dtype, pages)
    torch.testing.assert_close(out.double(), pool.dense()[0], atol=close, rtol=close)
    torch.set_num_threads(1)
    assert torch.equal(pool.read()[0], out)


def words(pages: Tensor, half: int, shape: tuple[int, int, int]) -> Tensor:
    """One half of pages as [blocks, kv_heads, rows, lanes, elements of a word], for (rows, lanes, elements)."""
    count = shape[0] * shape[1] * shape[2]
    part: Tensor = pages[:, half].flatten(2)[..., :count].unflatten(2, shape)
    return part


@each_dtype
@pytest.mark.parametrize(("block_size", "head_dim", "scattered"), paired((4, 16, 20, 32), (40, 64), (True, False)))
def test_write_fills_the_documented_layout(
    library: CDLL,
    dtype: torch.dtype,
    pages: torch.dtype,
    block_size: int,
    head_dim: int,
    threads: int,
    scattered: bool,
) -> None:
    torch.manual_seed(threads)
    kv_heads, word, tokens = 3, paged.WORD[pages], 700
    cache = filled(tokens // block_size + 2, (kv_heads, head_dim, block_size), pages, 0.0)
    k, v = torch.randn(tokens, 2 * kv_heads, head_dim, dtype=dtype).chunk(2, dim=1)
    slots = torch.randperm(len(cache) * block_size)[:tokens] if scattered else torch.arange(3, 3 + tokens)
    paged.write(library, cache, k, v, slots)
    keys = words(cache, 0, (head_dim // word, block_size, word)).permute(0, 3, 1, 2, 4).reshape(-1, kv_heads, head_dim)
    values = words(cache, 1, (block_size // word, head_dim, word)).permute(0, 2, 4, 1, 3)
    values = values.reshape(-1, kv_heads, head_dim)
    if pages == torch.int8:
        scales = cache.flatten(3)[..., head_dim * block_size :].contiguous().view(torch.float32)
        k_scales, v_scales = scales.permute(1, 0, 3, 2).flatten(1, 2)[..., None]
        keys, values = (keys.int() % 256 - 128) * k_scales, values * v_scales
    assert_kept(keys[slots], k, pages)
    assert_kept(values[slots], v, pages)
    rest = torch.ones(len(keys), dtype=torch.bool).index_fill_(0, slots, False)
    assert keys[rest].count_nonzero() == values[rest].count_nonzero() == 0


@each_dtype
def test_of_tokens_for_one_slot_the_last_stays(
    library: CDLL, dtype: torch.dtype, pages: torch.dtype, threads: int
) -> None:
    torch.manual_seed(threads)
    cache, only = (filled(2, (4, 64, 16), pages, 0.0) for _ in range(2))
    k, v = torch.randn(2, 600, 4, 64, dtype=dtype)
    paged.write(library, cache, k, v, torch.full((600,), 17))
    paged.write(library, only, k[-1:], v[-1:], torch.tensor([17]))
    assert torch.equal(cache, only)
    assert cache.count_nonzero() > 0
