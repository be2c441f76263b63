"""The plain scheme: right, and the same bits for a row in any company (this also guards CPUs not seen before)."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.quant import none
from transduce.quant.base import Activation, Epilogue
from transduce.quant.none import PLAIN, Rows, Unquantized

SIZES = ((96, 37), (37, 65), (512, 63), (384, 1001), (1536, 384))
COUNTS = (*range(1, 41), 63, 64, 65, 129, 255, 256, 257, 600)
ACTIVATIONS: tuple[Activation | None, ...] = (None, "relu", "gelu", "gelu_new", "silu")


def _layer(k: int, n: int, dtype: torch.dtype, rows: int = 600) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k * n)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((rows, k), (n, k), (n,)))
    return x.to(dtype), weight.to(dtype), bias.to(dtype)


def _assert_rows_keep_their_bits(x: Tensor, prepared: tuple[Tensor, ...], epilogue: Epilogue, tile: int) -> None:
    scheme = Unquantized()
    whole = scheme.linear(x, prepared, epilogue, tile)
    for count in COUNTS:
        start = (len(x) - count) // 2
        part = slice(start, start + count)
        assert torch.equal(scheme.linear(x[part], prepared, epilogue, tile), whole[part]), count


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("k", "n"), SIZES)
def test_a_row_has_the_same_bits_among_any_number(k: int, n: int, dtype: torch.dtype) -> None:
    x, weight, bias = _layer(k, n, dtype)
    prepared = Unquantized().prepare({"weight": weight})
    _assert_rows_keep_their_bits(x, prepared, Epilogue(bias), tile=64)
    _assert_rows_keep_their_bits(x, prepared, Epilogue(bias, "gelu"), tile=256)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ["relu", "gelu_new", "silu"])
def test_so_it_has_after_every_activation(activation: Activation, dtype: torch.dtype) -> None:
    x, weight, bias = _layer(96, 37, dtype)
    _assert_rows_keep_their_bits(x, Unquantized().prepare({"weight": weight}), Epilogue(bias, activation), tile=64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_so_it_has_without_packing(dtype: torch.dtype) -> None:
    x, weight, bias = _layer(96, 37, dtype)
    _assert_rows_keep_their_bits(x, (weight,), Epilogue(bias), tile=64)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 5, 64, 150])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_is_a_linear_layer(activation: Activation | None, with_bias: bool, rows: int, packed: bool) -> None:
    x, weight, bias = _layer(48, 31, torch.float32, rows)
    epilogue = Epilogue(bias if with_bias else None, activation)
    prepared = Unquantized().prepare({"weight": weight}) if packed else (weight,)
    expected = PLAIN[activation](F.linear(x, weight, epilogue.bias))
    torch.testing.assert_close(Unquantized().linear(x, prepared, epilogue, 64), expected)


def test_activations_are_told_apart() -> None:
    x, weight, bias = _layer(48, 31, torch.float32)
    prepared = Unquantized().prepare({"weight": weight})
    results = [Unquantized().linear(x, prepared, Epilogue(bias, act), 64) for act in ACTIVATIONS]
    assert all((a - b).abs().max() > 1e-4 for a, b in itertools.combinations(results, 2))


def test_a_packed_weight_is_kept_once() -> None:
    """oneDNN's form alone, on a CPU that has it."""
    (prepared,) = Unquantized().prepare({"weight": torch.randn(8, 8)})
    assert prepared.is_mkldnn == torch.backends.mkldnn.is_available()


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 128, 200])
def test_a_tile_is_never_more_nor_less(rows: int) -> None:
    seen: list[int] = []

    def call(part: Tensor) -> Tensor:
        seen.append(len(part))
        return part * 2

    x = torch.randn(rows, 3)
    assert torch.equal(none._by_rows(x, Rows.TILE, 64, call), x * 2)
    assert set(seen) == {64}


@pytest.mark.parametrize(("rows", "given"), [(0, 4), (1, 4), (3, 4), (4, 4), (9, 9)])
def test_few_rows_become_enough(rows: int, given: int) -> None:
    seen: list[int] = []

    def call(part: Tensor) -> Tensor:
        seen.append(len(part))
        return part * 2

    x = torch.randn(rows, 3)
    assert torch.equal(none._by_rows(x, Rows.ENOUGH, 64, call), x * 2)
    assert seen == [given]
