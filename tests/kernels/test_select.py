"""Argmax, top-k and log-sum-exp against torch and a stable sort, at every level that this CPU runs."""

from ctypes import CDLL

import pytest
import torch
from torch import Tensor

from transduce.kernels import load, select

INF, NAN = float("inf"), float("nan")

SHAPES = [(1, 1), (3, 2), (2, 15), (2, 16), (3, 17), (2, 63), (2, 65), (5, 1_000), (2, 2_048), (2, 2_049), (3, 50_265)]
"""[rows, vocab]."""

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(params=load.usable_levels())
def library(request: pytest.FixtureRequest) -> CDLL:
    return load.load(request.param)


def draw(rows: int, vocab: int, dtype: torch.dtype) -> Tensor:
    """Logits; in bfloat16 many are equal."""
    return (torch.randn(rows, vocab, generator=torch.Generator().manual_seed(rows + vocab)) * 4).to(dtype)


def ranked(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Top-k by a stable sort: of equals the lower index first, NaN above all."""
    values, indices = logits.float().sort(dim=-1, descending=True, stable=True)
    return values[:, :k], indices[:, :k]


def same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "vocab"), SHAPES)
def test_argmax_is_the_first_of_the_greatest(library: CDLL, rows: int, vocab: int, dtype: torch.dtype) -> None:
    logits = draw(rows, vocab, dtype)
    same(select.argmax(library, logits), ranked(logits, 1)[1][:, 0])


@pytest.mark.parametrize("k", [1, 2, 8, 64, 300])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "vocab"), SHAPES)
def test_top_k_is_a_stable_sorts(library: CDLL, rows: int, vocab: int, dtype: torch.dtype, k: int) -> None:
    logits, k = draw(rows, vocab, dtype), min(k, vocab)
    values, indices = select.top_k(library, logits, k)
    wanted_values, wanted_indices = ranked(logits, k)
    same(values, wanted_values)
    same(indices, wanted_indices)


@pytest.mark.parametrize("k", [1, 8, 64])
@pytest.mark.parametrize("ascending", [True, False])
def test_the_order_of_the_logits_does_not_matter(library: CDLL, ascending: bool, k: int) -> None:
    logits = draw(2, 5_000, torch.float32).sort(dim=-1, descending=not ascending).values
    same(select.argmax(library, logits), ranked(logits, 1)[1][:, 0])
    same(select.top_k(library, logits, k)[1], ranked(logits, k)[1])


@pytest.mark.parametrize(
    "row",
    [
        [-INF] * 100,
        [0.0, -0.0] * 50,
        [-0.0, 0.0] * 50,
        [7.0] * 3_000,
        [-INF] * 90 + [1.0, -INF, 1.0],
        [1.0] * 40 + [INF] + [2.0] * 40 + [INF],
        [1.0] * 40 + [NAN] + [INF] * 40 + [NAN] * 80,
        [NAN] * 300,
        [NAN] + [1.0] * 300,
        [-INF] * 2_100 + [NAN, -1.0],
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", [1, -1])
def test_infinities_nans_and_equals(library: CDLL, row: list[float], dtype: torch.dtype, sign: int) -> None:
    logits = sign * torch.tensor([row, row], dtype=dtype)
    same(select.argmax(library, logits), logits.float().argmax(-1))
    values, indices, lse = select.top_k_lse(library, logits, 5)
    wanted_values, wanted_indices = ranked(logits, 5)
    same(values, wanted_values)
    same(indices, wanted_indices)
    torch.testing.assert_close(lse, logits.float().logsumexp(-1), rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "vocab"), SHAPES)
def test_log_sum_exp_is_torchs(library: CDLL, rows: int, vocab: int, dtype: torch.dtype) -> None:
    logits = draw(rows, vocab, dtype)
    values, indices, lse = select.top_k_lse(library, logits, 1)
    torch.testing.assert_close(lse, logits.double().logsumexp(-1).float(), rtol=1e-6, atol=1e-6)
    same(torch.cat([values, indices.float()]), torch.cat([each.float() for each in select.top_k(library, logits, 1)]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_is_the_same_alone_and_anywhere(library: CDLL, dtype: torch.dtype, threads: int) -> None:
    logits = draw(7, 200_003, dtype)  # a row of this length is cut among threads
    before = torch.get_num_threads()
    together = (select.argmax(library, logits), *select.top_k_lse(library, logits, 8))
    torch.set_num_threads(threads)
    try:
        for row in range(7):
            one = logits[row : row + 1]
            alone = (select.argmax(library, one), *select.top_k_lse(library, one, 8))
            for ours, theirs in zip(alone, together, strict=True):
                same(ours[0], theirs[row])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_may_lie_apart(library: CDLL, dtype: torch.dtype) -> None:
    padded = draw(4, 640, dtype)
    padded[:, 500:] = INF
    logits = padded[:, :500]
    same(select.argmax(library, logits), ranked(logits, 1)[1][:, 0])
    same(select.top_k(library, logits, 8)[1], ranked(logits, 8)[1])


def test_no_rows(library: CDLL) -> None:
    logits = torch.empty(0, 100)
    assert select.argmax(library, logits).shape == (0,)
    assert [each.shape for each in select.top_k_lse(library, logits, 4)] == [(0, 4), (0, 4), (0,)]
