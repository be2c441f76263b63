"""The int8 scheme: the integers a weight becomes, the layer they make, with kernels and without, and rows alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce import quant
from transduce.errors import ConfigError
from transduce.quant import int8
from transduce.quant.base import Epilogue, RowsHint
from transduce.quant.int8 import Int8, dequantized, quantized

SIZES = ((96, 37), (37, 65), (384, 1001))
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(params=["kernels", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the kernels, where there are any, and without."""
    if request.param == "torch":
        monkeypatch.setattr(int8, "library", lambda: None)
        monkeypatch.setattr(int8, "available", lambda device: False)
    return str(request.param)


def _drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_integers_are_the_nearest_and_the_largest_is_127(
    way: str, inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    weight = (_drawn(outputs, inputs) * _drawn(outputs, 1).exp()).to(dtype)
    integers, scale = quantized(weight)
    assert (integers.dtype, scale.dtype) == (torch.int8, torch.float32)
    assert (integers.int().abs().amax(1) == 127).all()
    assert ((dequantized(integers, scale, torch.float32) - weight.float()).abs() <= scale[:, None] * 0.5001).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_kernels_and_torch_make_the_same_integers_but_for_ties(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = torch.cat([_drawn(301, 77), torch.zeros(1, 77), torch.arange(-38.5, 38.5)[None]]).to(dtype)
    by_kernels = quantized(weight)
    monkeypatch.setattr(int8, "library", lambda: None)
    by_torch = quantized(weight)
    assert torch.equal(by_kernels[1], by_torch[1])
    differ = by_kernels[0] != by_torch[0]
    assert ((by_kernels[0].int() - by_torch[0].int()).abs() <= 1).all()
    fraction = (weight.double() / by_torch[1].double()[:, None])[differ].abs() % 1
    assert ((fraction - 0.5).abs() < 1e-4).all()


def test_an_output_of_zeros_stays_zero(way: str) -> None:
    integers, scale = quantized(torch.zeros(3, 8))
    assert not integers.any()
    assert not scale.any()


@pytest.mark.parametrize("results", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_it_is_a_linear_layer(way: str, inputs: int, outputs: int, dtype: torch.dtype, results: torch.dtype) -> None:
    x, bias = _drawn(9, inputs).to(dtype), _drawn(outputs)
    tensors = Int8().quantize(_drawn(outputs, inputs))
    made = Int8().prepare(tensors, Epilogue(results, bias.to(results), "relu"), RowsHint(64))(x)
    weight = dequantized(tensors["weight"], tensors["weight_scale"], torch.float32)
    expected = F.relu(F.linear(x.float(), weight, bias))
    assert made.dtype == results
    assert float((made.float() - expected).norm() / expected.norm()) < 0.01


def test_a_row_has_the_same_bits_among_any_number(way: str) -> None:
    x = _drawn(130, 96)
    layer = Int8().prepare(Int8().quantize(_drawn(65, 96)), Epilogue(torch.float32), RowsHint(64))
    whole = layer(x)
    for start, count in ((0, 1), (3, 2), (7, 5), (1, 64), (20, 65)):
        assert torch.equal(layer(x[start : start + count]), whole[start : start + count])


def test_the_tensors_are_those_it_names() -> None:
    made = Int8().quantize(_drawn(6, 4))
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in made.items()} == {
        name: (spec.shape, spec.dtype) for name, spec in Int8().params(6, 4).items()
    }


def test_schemes_are_found_by_name() -> None:
    assert isinstance(quant.named("int8"), Int8)
    assert quant.named(None).name is None
    with pytest.raises(ConfigError, match=r"quantization='int3': there is no such scheme; give one of .*int8"):
        quant.named("int3")
