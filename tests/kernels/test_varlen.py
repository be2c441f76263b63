"""Packed self-attention against the textbook, at every level that this CPU runs; an item has the same bits anywhere."""

from collections.abc import Iterator
from ctypes import CDLL
from itertools import product

import pytest
import torch
from torch import Tensor

from tests.attention.batches import TOLERANCE, Heads, attends, dense
from transduce.attention.base import Attend
from transduce.kernels import load
from transduce.kernels.varlen import varlen

LENGTHS = (0, 1, 15, 16, 17, 33, 0, 500, 64, 300)
HEADS = Heads(2, 4, 64)
WAYS = list(attends(HEADS))
OTHER_HEADS = [Heads(2, 2, 80), Heads(1, 1, 256), Heads(1, 3, 32), Heads(3, 3, 4), Heads(2, 2, 40)]
DTYPES = [torch.float32, torch.bfloat16]

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.fixture(params=load.usable_levels())
def library(request: pytest.FixtureRequest) -> CDLL:
    return load.load(request.param)


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def inputs(heads: Heads, rows: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, ...]:
    """q, k and v as views of one matrix that has other columns too."""
    count = heads.heads + 2 * heads.kv_heads
    fused = torch.randn(rows, count + 1, heads.head_dim, generator=torch.Generator().manual_seed(seed)).to(dtype)
    q, k, v = fused[:, :count].split((heads.heads, heads.kv_heads, heads.kv_heads), dim=1)
    return q, k, v


def attention(library: CDLL, qkv: tuple[Tensor, ...], lengths: tuple[int, ...], attend: Attend) -> Tensor:
    q, k, v = qkv
    a = attend
    return varlen(library, q, k, v, lengths, a.scale, a.causal, a.bias, a.softcap, a.window)


def expected(qkv: tuple[Tensor, ...], lengths: tuple[int, ...], attend: Attend) -> Tensor:
    items = zip(*(x.split(lengths) for x in qkv), strict=True)
    return torch.cat([dense(q, k, v, 0, len(q), attend)[0] for q, k, v in items])


@each_dtype
@pytest.mark.parametrize(
    ("heads", "way"), [*product([HEADS], WAYS), *product(OTHER_HEADS, ["plain", "everything"])], ids=str
)
def test_it_is_attention(library: CDLL, heads: Heads, way: str, dtype: torch.dtype) -> None:
    qkv, attend = inputs(heads, sum(LENGTHS), dtype), attends(heads)[way]
    out = attention(library, qkv, LENGTHS, attend)
    assert out.is_contiguous()
    assert out.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else TOLERANCE[dtype]
    torch.testing.assert_close(out.double(), expected(qkv, LENGTHS, attend), rtol=0, atol=tolerance)


@each_dtype
@pytest.mark.parametrize("way", WAYS)
def test_an_item_is_alone(library: CDLL, way: str, dtype: torch.dtype) -> None:
    qkv, attend = inputs(HEADS, sum(LENGTHS), dtype), attends(HEADS)[way]
    together = attention(library, qkv, LENGTHS, attend).split(LENGTHS)
    items = zip(*(x.split(LENGTHS) for x in qkv), strict=True)
    for (q, k, v), rows in zip(items, together, strict=True):
        alone = attention(library, (q.clone(), k.clone(), v.clone()), (len(q),), attend)
        assert torch.equal(alone, rows), len(q)


@each_dtype
@pytest.mark.parametrize("lengths", [LENGTHS, (700,)], ids=str)
@pytest.mark.parametrize("way", ["plain", "causal window", "bias"])
def test_threads_change_nothing(
    library: CDLL, lengths: tuple[int, ...], way: str, dtype: torch.dtype, threads: None
) -> None:
    heads = Heads(1, 2, 64)
    qkv, attend = inputs(heads, sum(lengths), dtype), attends(heads)[way]
    torch.set_num_threads(1)
    one = attention(library, qkv, lengths, attend)
    for count in (2, 5):
        torch.set_num_threads(count)
        assert torch.equal(attention(library, qkv, lengths, attend), one), count


@each_dtype
def test_scores_may_be_far_apart(library: CDLL, dtype: torch.dtype) -> None:
    heads = Heads(1, 1, 64)
    q, k, v = (x.clone() for x in inputs(heads, 600, dtype))
    k *= torch.linspace(0, 40, 600, dtype=dtype)[:, None, None]
    attend = Attend(1.0)
    out = attention(library, (q, k, v), (600,), attend)
    scores = q[:, 0].double() @ k[:, 0].double().T
    clear = (scores.topk(2).values.diff() < -20)[:, 0]
    assert clear.sum() > 300
    torch.testing.assert_close(out[clear, 0], v[scores.argmax(1)[clear], 0], rtol=1e-2, atol=1e-6)


@each_dtype
def test_far_keys_have_the_bias_at_the_tables_ends(library: CDLL, dtype: torch.dtype) -> None:
    heads, bias = Heads(1, 1, 32), torch.full((1, 5), -200.0)
    bias[0, 4] = 0
    q, k, v = inputs(heads, 40, dtype)
    out = attention(library, (0 * q, k, v), (40,), Attend(1.0, bias=bias))
    ahead = torch.stack([v[i + 2 :, 0].double().mean(0) for i in range(38)])
    torch.testing.assert_close(out[:38, 0].double(), ahead, rtol=0, atol=TOLERANCE[dtype] / 2)


@each_dtype
def test_it_goes_on_beside_torchs_own_tiles(library: CDLL, dtype: torch.dtype) -> None:
    heads = Heads(4, 4, 64)
    qkv, attend = inputs(heads, 300, dtype), attends(heads)["plain"]
    x, weight = torch.randn(2, 256, 256).to(dtype)
    expected_product, out = x @ weight, attention(library, qkv, (300,), attend)
    for _ in range(3):
        assert torch.equal(x @ weight, expected_product)
        assert torch.equal(attention(library, qkv, (300,), attend), out)


def test_nothing_gives_nothing(library: CDLL) -> None:
    qkv = inputs(Heads(1, 2, 64), 0, torch.float32)
    for lengths in ((), (0, 0)):
        assert attention(library, qkv, lengths, Attend(1.0)).shape == (0, 2, 64)


def test_heads_may_lie_apart(library: CDLL) -> None:
    heads = Heads(2, 2, 64)
    qkv = inputs(heads, 50, torch.float32)
    apart = tuple(x.transpose(0, 1).contiguous().transpose(0, 1) for x in qkv)
    attend = attends(heads)["plain"]
    assert torch.equal(attention(library, apart, (20, 30), attend), attention(library, qkv, (20, 30), attend))
