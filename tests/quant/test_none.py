"""The plain scheme: right, and the same bits for a row in any company (this also guards CPUs not seen before)."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.quant import none
from transduce.quant.base import Activation, Epilogue, Linear, RowsHint
from transduce.quant.native import NativeLinear
from transduce.quant.none import PLAIN, Rows, TorchLinear, Unquantized

SIZES = ((96, 37), (37, 65), (512, 63), (384, 1001), (1536, 384))
COUNTS = (*range(1, 41), 63, 64, 65, 129, 255, 256, 257, 600)
ACTIVATIONS: tuple[Activation | None, ...] = (None, "relu", "gelu", "gelu_new", "silu")


def _layer(k: int, n: int, dtype: torch.dtype, rows: int = 600) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k * n)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((rows, k), (n, k), (n,)))
    return x.to(dtype), weight.to(dtype), bias.to(dtype)


def _packed(weight: Tensor, epilogue: Epilogue, tile: int = 64) -> TorchLinear:
    """The layer in oneDNN's form."""
    return TorchLinear(torch.ops.mkldnn._reorder_linear_weight(weight, None), epilogue, tile)


def _assert_rows_keep_their_bits(layer: Linear, x: Tensor) -> None:
    whole = layer(x)
    for count in COUNTS:
        start = (len(x) - count) // 2
        part = slice(start, start + count)
        assert torch.equal(layer(x[part]), whole[part]), count


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("k", "n"), SIZES)
def test_a_row_has_the_same_bits_among_any_number(k: int, n: int, dtype: torch.dtype) -> None:
    x, weight, bias = _layer(k, n, dtype)
    _assert_rows_keep_their_bits(_packed(weight, Epilogue(dtype, bias)), x)
    _assert_rows_keep_their_bits(_packed(weight, Epilogue(dtype, bias, "gelu"), tile=256), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ["relu", "gelu_new", "silu"])
def test_so_it_has_after_every_activation(activation: Activation, dtype: torch.dtype) -> None:
    x, weight, bias = _layer(96, 37, dtype)
    _assert_rows_keep_their_bits(_packed(weight, Epilogue(dtype, bias, activation)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_so_it_has_without_packing(dtype: torch.dtype) -> None:
    x, weight, bias = _layer(96, 37, dtype)
    _assert_rows_keep_their_bits(TorchLinear(weight, Epilogue(dtype, bias), 64), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_so_it_has_in_the_form_that_is_picked(dtype: torch.dtype) -> None:
    x, weight, bias = _layer(96, 37, dtype)
    _assert_rows_keep_their_bits(
        Unquantized().prepare({"weight": weight}, Epilogue(dtype, bias, "gelu"), RowsHint(64)), x
    )


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 5, 64, 150])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_is_a_linear_layer(activation: Activation | None, with_bias: bool, rows: int, packed: bool) -> None:
    x, weight, bias = _layer(48, 31, torch.float32, rows)
    epilogue = Epilogue(torch.float32, bias if with_bias else None, activation)
    layer = _packed(weight, epilogue) if packed else TorchLinear(weight, epilogue, 64)
    expected = PLAIN[activation](F.linear(x, weight, epilogue.bias))
    torch.testing.assert_close(layer(x), expected)
    times, plus = torch.randn_like(expected), torch.randn_like(expected)
    torch.testing.assert_close(layer(x, times, plus), expected * times + plus)


def test_results_come_in_the_dtype_asked_for() -> None:
    x, weight, bias = _layer(48, 31, torch.bfloat16)
    for layer in (
        TorchLinear(weight, Epilogue(torch.float32, bias), 64),
        Unquantized().prepare({"weight": weight}, Epilogue(torch.float32, bias), RowsHint(64)),
    ):
        assert layer(x).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bias_may_be_of_another_dtype(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(none, "_native", lambda *_: False)
    x, weight, bias = _layer(48, 31, torch.bfloat16)
    layer = Unquantized().prepare({"weight": weight.to(dtype)}, Epilogue(torch.float32, bias), RowsHint(64))
    torch.testing.assert_close(layer(x.to(dtype)), F.linear(x, weight, bias).float(), rtol=2e-2, atol=5e-2)


def test_kernels_are_used_where_they_are_faster() -> None:
    def kind(dtype: torch.dtype) -> type[Linear]:
        return type(Unquantized().prepare({"weight": torch.randn(8, 8, dtype=dtype)}, Epilogue(dtype), RowsHint(64)))

    assert kind(torch.float32) is TorchLinear
    assert kind(torch.bfloat16) is NativeLinear


def test_activations_are_told_apart() -> None:
    x, weight, bias = _layer(48, 31, torch.float32)
    results = [_packed(weight, Epilogue(torch.float32, bias, act))(x) for act in ACTIVATIONS]
    assert all((a - b).abs().max() > 1e-4 for a, b in itertools.combinations(results, 2))


def test_a_packed_weight_is_kept_once() -> None:
    """oneDNN's form alone, on a CPU that has it."""
    layer = Unquantized().prepare({"weight": torch.randn(8, 8)}, Epilogue(torch.float32), RowsHint(64))
    assert isinstance(layer, TorchLinear)
    assert layer.weight.is_mkldnn == torch.backends.mkldnn.is_available()


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 128, 200])
def test_a_tile_is_never_more_nor_less(rows: int) -> None:
    seen: list[int] = []

    def call(part: Tensor) -> Tensor:
        seen.append(len(part))
        return part * 2

    x = torch.randn(rows, 3)
    assert torch.equal(none.by_rows(x, Rows.TILE, 64, call), x * 2)
    assert set(seen) == {64}


@pytest.mark.parametrize(("rows", "given"), [(0, 4), (1, 4), (3, 4), (4, 4), (9, 9)])
def test_few_rows_become_enough(rows: int, given: int) -> None:
    seen: list[int] = []

    def call(part: Tensor) -> Tensor:
        seen.append(len(part))
        return part * 2

    x = torch.randn(rows, 3)
    assert torch.equal(none.by_rows(x, Rows.ENOUGH, 64, call), x * 2)
    assert seen == [given]
