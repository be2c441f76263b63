"""The linear kernels against torch, at every level that this CPU runs; a row has the same bits in any company."""

from collections.abc import Callable
from ctypes import CDLL

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.kernels import load, select
from transduce.kernels.linear import Activation, Packed, best, linear, pack, pack_codes, quantize, top_k_lse

WIDE = torch.int16
"""Stands for integer weights that meet activations of two integers each."""

APART = torch.int32
"""Stands for integer weights that meet outliers as floats, and other activations as integers."""

THRESHOLD = 2.0
SHAPES = [(1, 1), (16, 64), (20, 63), (37, 65), (64, 16), (100, 70), (130, 200), (770, 50)]
ROWS = [1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 48, 49, 100]
KINDS = [torch.float32, torch.bfloat16, torch.int8, WIDE, APART]
INTEGERS = (torch.int8, WIDE, APART)
PLAIN: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.NONE: lambda x: x,
    Activation.RELU: F.relu,
    Activation.GELU: F.gelu,
    Activation.GELU_NEW: lambda x: F.gelu(x, approximate="tanh"),
    Activation.SILU: F.silu,
}


@pytest.fixture(params=load.usable_levels())
def library(request: pytest.FixtureRequest) -> CDLL:
    return load.load(request.param)


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def quantized_rows(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Rows as integers up to `most` and what one is worth, as the kernel makes them."""
    scale = x.abs().amax(1) / most
    return (x * torch.where(scale > 0, 1 / scale, 0)[:, None]).round(), scale


def made(library: CDLL, weight: Tensor, bias: Tensor | None, kind: torch.dtype, then: Activation) -> Packed:
    if kind in INTEGERS:
        threshold = THRESHOLD if kind is APART else 0.0
        return pack(library, *quantize(library, weight), bias, then, wide=kind is WIDE, threshold=threshold)
    return pack(library, weight.to(kind), None, bias, then)


def expected(library: CDLL, x: Tensor, weight: Tensor, bias: Tensor, kind: torch.dtype) -> Tensor:
    """x · weightᵀ + bias as the kind computes it, in float64."""
    if kind not in INTEGERS:
        return F.linear(x.to(kind).double(), weight.to(kind).double(), bias.double())
    integers, unit = quantize(library, weight)
    apart = (x.abs() >= THRESHOLD) & (kind is APART)
    rows, scale = quantized_rows(x.masked_fill(apart, 0), 127 * 128 if kind is WIDE else 127)
    floats = rows.double() * scale[:, None].double() + x.masked_fill(~apart, 0).double()
    return floats @ integers.double().T * unit.double() + bias.double()


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_it_is_a_linear_layer(library: CDLL, inputs: int, outputs: int, kind: torch.dtype) -> None:
    weight, bias = values(outputs, inputs), values(outputs)
    packed = made(library, weight, bias, kind, Activation.NONE)
    for rows in ROWS:
        x = values(rows, inputs, seed=rows)
        result = linear(library, packed, x, torch.float32)
        # A row value on the edge between two integers may go either way.
        off = {torch.float32: 5e-5, torch.bfloat16: 5e-5, torch.int8: 0.02, WIDE: 1e-3, APART: 0.02}[kind]
        torch.testing.assert_close(result.double(), expected(library, x, weight, bias, kind), rtol=off, atol=off)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_integers_are_close_to_the_floats(library: CDLL, kind: torch.dtype) -> None:
    weight, bias, x = values(96, 512), values(96), values(40, 512, seed=1)
    result = linear(library, made(library, weight, bias, kind, Activation.NONE), x, torch.float32)
    wanted = F.linear(x, weight, bias)
    off = (result - wanted).norm() / wanted.norm()
    assert off < {torch.float32: 1e-6, torch.bfloat16: 5e-3, torch.int8: 2e-2, WIDE: 1e-2, APART: 1.5e-2}[kind]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("then", Activation, ids=lambda then: then.name.lower())
def test_the_activation_follows(library: CDLL, then: Activation, kind: torch.dtype) -> None:
    weight, bias, x = values(70, 33) / 4, values(70), values(21, 33, seed=2) * 3
    before = linear(library, made(library, weight, bias, kind, Activation.NONE), x, torch.float32)
    after = linear(library, made(library, weight, bias, kind, then), x, torch.float32)
    off = 1e-6 if kind is torch.float32 else 5e-5
    torch.testing.assert_close(after, PLAIN[then](before), rtol=off, atol=off)


@pytest.mark.parametrize("then", [Activation.GELU, Activation.GELU_NEW, Activation.SILU], ids=str)
def test_activations_are_right_far_out(library: CDLL, then: Activation) -> None:
    x = torch.cat([torch.linspace(-100, 100, 4001), torch.tensor([0.0, -1e-6, 1e-6, 1e30, -1e30, torch.inf])])[:, None]
    packed = pack(library, torch.ones(1, 1), None, None, then)
    wanted = PLAIN[then](x.double()).float()
    torch.testing.assert_close(linear(library, packed, x, torch.float32), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_multiply_and_add(library: CDLL, dtype: torch.dtype, kind: torch.dtype) -> None:
    packed = made(library, values(70, 33), values(70), kind, Activation.RELU)
    x, times, plus = values(21, 33), values(21, 70, seed=1).to(dtype), values(21, 70, seed=2).to(dtype)
    alone = linear(library, packed, x, torch.float32)
    off = 1e-6 if dtype == torch.float32 else 1e-2
    for factor, term in ((times, None), (None, plus), (times, plus)):
        wanted = alone if factor is None else alone * factor.float()
        wanted = wanted if term is None else wanted + term.float()
        result = linear(library, packed, x, dtype, factor, term)
        torch.testing.assert_close(result.float(), wanted, rtol=off, atol=off)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_has_the_same_bits_among_any_number(library: CDLL, dtype: torch.dtype, kind: torch.dtype) -> None:
    packed = made(library, values(130, 200), values(130), kind, Activation.GELU)
    x, plus = values(1100, 200).to(dtype), values(1100, 130).to(dtype)
    whole = linear(library, packed, x, dtype, None, plus)
    for count in (*ROWS, 255, 256, 257, 600):
        part = slice((len(x) - count) // 2, (len(x) - count) // 2 + count)
        assert torch.equal(linear(library, packed, x[part], dtype, None, plus[part]), whole[part]), count


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_threads_change_nothing(library: CDLL, kind: torch.dtype) -> None:
    packed, x = made(library, values(500, 400), values(500), kind, Activation.GELU), values(700, 400)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(linear(library, packed, x, torch.float32))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_may_lie_apart(library: CDLL, kind: torch.dtype) -> None:
    packed = made(library, values(20, 30), None, kind, Activation.NONE)
    wide = values(7, 90)
    apart = linear(library, packed, wide[:, 30:60], torch.float32)
    assert torch.equal(apart, linear(library, packed, wide[:, 30:60].contiguous(), torch.float32))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_a_poisoned_row_is_alone(library: CDLL, poison: float, kind: torch.dtype) -> None:
    packed = made(library, values(70, 33), None, kind, Activation.NONE)
    x = values(40, 33)
    clean = linear(library, packed, x, torch.float32)
    x[17, 5] = poison
    result = linear(library, packed, x, torch.float32)
    assert not result[17].isfinite().any()
    others = torch.arange(40) != 17
    assert torch.equal(result[others], clean[others])


def test_outliers_leave_wide_rows_their_precision(library: CDLL) -> None:
    weight, x = values(96, 512), values(40, 512)
    x[:, 7] = 300.0
    wanted = x[:, 8:] @ weight[:, 8:].T
    errors = []
    for kind in INTEGERS:
        integers, scale = quantize(library, weight)
        floats = (integers * scale[:, None])[:, :8]
        result = linear(library, made(library, weight, None, kind, Activation.NONE), x, torch.float32)
        errors.append(float((result - x[:, :8] @ floats.T - wanted).norm() / wanted.norm()))
    assert max(errors[1:]) < 0.02 < 0.2 < errors[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("inputs", "outputs", "run"), [(2, 1, 2), (24, 70, 8), (96, 33, 32), (192, 200, 64), (40, 64, 4)]
)
def test_codes_are_the_floats_that_they_stand_for(
    library: CDLL, inputs: int, outputs: int, run: int, dtype: torch.dtype
) -> None:
    """Bit for bit what those floats make, whatever is asked."""
    codes = torch.randint(0, 256, (outputs, inputs // 2), dtype=torch.uint8)
    absmax, levels, bias = values(outputs, inputs // run).abs(), values(16), values(outputs)
    floats = levels[torch.stack([codes >> 4, codes & 15], -1).flatten(1).int()] * absmax.repeat_interleave(run, 1)
    packed = pack_codes(library, codes, absmax, levels, dtype, bias)
    expected = pack(library, floats.to(dtype), None, bias)
    for rows in (1, 17, 40, 600):
        x = values(rows, inputs).to(dtype)
        assert torch.equal(linear(library, packed, x, dtype), linear(library, expected, x, dtype))
        k = min(3, outputs)
        found, wanted = ((*best(library, w, x), *top_k_lse(library, w, x, k)) for w in (packed, expected))
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))


def test_no_rows_are_no_work(library: CDLL) -> None:
    packed = made(library, values(20, 30), None, torch.int8, Activation.NONE)
    assert linear(library, packed, torch.empty(0, 30), torch.float32).shape == (0, 20)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_quantizing_is_symmetric_per_output(library: CDLL, dtype: torch.dtype) -> None:
    weight = torch.cat([values(9, 37), torch.zeros(1, 37)]).to(dtype)
    integers, scale = quantize(library, weight)
    floats = weight.float()
    torch.testing.assert_close(scale, floats.abs().amax(1) / 127)
    assert integers.abs().amax(1).tolist() == [127] * 9 + [0]
    assert ((integers.float() * scale[:, None] - floats).abs() <= scale[:, None] * 0.501).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_best_is_the_first_of_the_greatest(library: CDLL, kind: torch.dtype) -> None:
    weight, bias = values(1003, 96), values(1003)
    for twin in (100, 700, 1002):
        weight[twin], bias[twin] = weight[40].clone(), bias[40].clone()
    packed = made(library, weight, bias, kind, Activation.NONE)
    for rows in (1, 16, 17, 33, 70):
        x = values(rows, 96, seed=rows)
        x[0] = weight[40]
        scores = linear(library, packed, x, torch.float32)
        greatest, indices = best(library, packed, x)
        assert torch.equal(indices, scores.argmax(-1))
        assert torch.equal(greatest, scores.amax(-1))
        assert indices[0] == 40


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("rows", "outputs", "k"), [(1, 4, 3), (17, 2080, 5), (40, 1003, 300), (260, 1024, 4)])
def test_the_best_and_the_sum_are_those_of_all_outputs(
    library: CDLL, kind: torch.dtype, rows: int, outputs: int, k: int
) -> None:
    weight, bias = values(outputs, 40), values(outputs)
    weight[outputs // 2], bias[outputs // 2] = weight[1].clone(), bias[1].clone()
    packed = made(library, weight, bias, kind, Activation.NONE)
    x = values(rows, 41)[:, :40].bfloat16()
    x[0], x[-1] = torch.nan, 3 * weight[1]
    found = top_k_lse(library, packed, x, k)
    expected = select.top_k_lse(library, linear(library, packed, x, torch.float32), k)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    assert found[1][-1, :2].tolist() == [1, outputs // 2]


def test_a_row_without_numbers_has_no_best(library: CDLL) -> None:
    packed = made(library, values(70, 33), None, torch.bfloat16, Activation.NONE)
    x = values(3, 33)
    x[1] = torch.nan
    greatest, _ = best(library, packed, x)
    assert greatest.isfinite().tolist() == [True, False, True]
