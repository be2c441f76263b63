"""bitsandbytes' schemes against bitsandbytes: the codes and integers of weights, the layers they make, rows alone."""

import bitsandbytes.functional as bnb
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.bitsandbytes import RowByRow, four_bit_floats
from transduce.errors import CheckpointError
from transduce.quant import bitsandbytes, codes, llm_int8, said
from transduce.quant.base import Epilogue, RowsHint
from transduce.quant.bitsandbytes import FP4, NF4, FourBit
from transduce.quant.llm_int8 import LLMInt8
from transduce.quant.none import Unquantized

SHAPES = ((96, 24), (33, 96), (70, 768), (5, 40), (7, 37), (3, 7))
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 0.1}
KINDS: list[type[FourBit]] = [NF4, FP4]


@pytest.fixture(params=["kernels", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the kernels, where there are any, and without."""
    if request.param == "torch":
        for module in (bitsandbytes, llm_int8):
            monkeypatch.setattr(module, "available", lambda device: False)
    return str(request.param)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("scheme", KINDS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_codes_are_those_of_bitsandbytes(scheme: type[FourBit], dtype: torch.dtype, shape: tuple[int, int]) -> None:
    weight = drawn(*shape).to(dtype)
    weight.view(-1)[: weight.numel() // 3] = 0  # whole blocks among them
    packed, state = bnb.quantize_4bit(weight, quant_type=scheme.kind)
    made, absmax = codes.quantize(weight, scheme.levels)
    assert torch.equal(made, packed.flatten())
    assert torch.equal(absmax, state.absmax)


@pytest.mark.parametrize("scheme", KINDS)
def test_so_are_values_halfway_between_levels(scheme: type[FourBit], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "AT_ONCE", 3 * codes.BLOCK)
    levels = torch.tensor(scheme.levels).sort().values
    halfway = (levels[1:] + levels[:-1]) / 2
    weight = torch.cat([levels, halfway, halfway.nextafter(levels[1:]), levels, torch.ones(3)]).repeat(21) * 3
    packed, _ = bnb.quantize_4bit(weight, quant_type=scheme.kind)
    assert torch.equal(codes.quantize(weight, scheme.levels)[0], packed.flatten())


@pytest.mark.parametrize("scheme", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_layer_is_that_of_the_floats(
    way: str, scheme: type[FourBit], dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    """Bit for bit where kernels multiply both."""
    weight, bias, x = drawn(*shape), drawn(shape[0]), drawn(90, shape[1]).to(dtype)
    floats = four_bit_floats(weight, scheme.kind, nested=False).to(dtype)
    epilogue = Epilogue(dtype, bias, "gelu")
    layer = scheme().prepare(scheme().quantize(weight), epilogue, RowsHint(64))
    expected = Unquantized().prepare({"weight": floats}, epilogue, RowsHint(64))
    if way == "kernels" and dtype == torch.bfloat16:
        assert torch.equal(layer(x), expected(x))
    off = CLOSE[dtype]
    torch.testing.assert_close(layer(x), expected(x), rtol=off, atol=off)


@pytest.mark.parametrize("scheme", [NF4(), LLMInt8()], ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_has_the_same_bits_among_any_number(way: str, scheme: FourBit | LLMInt8, dtype: torch.dtype) -> None:
    """Whatever outliers the others have."""
    x = (drawn(300, 96) * 3).to(dtype)
    epilogue = Epilogue(dtype, None, "gelu")
    layer = scheme.prepare(scheme.quantize(drawn(65, 96)), epilogue, RowsHint(64))
    whole = layer(x)
    for start, count in ((0, 1), (3, 2), (7, 5), (1, 64), (20, 65), (9, 257)):
        assert torch.equal(layer(x[start : start + count]), whole[start : start + count])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_integers_are_those_of_bitsandbytes(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    weight = drawn(*shape).to(dtype)
    integers, largest, _ = bnb.int8_vectorwise_quant(weight.half())
    made = LLMInt8().quantize(weight)
    assert torch.equal(made["weight"], integers)
    assert torch.equal(made["SCB"], largest)


@pytest.mark.parametrize("threshold", [0.0, 2.0, 6.0])
@pytest.mark.parametrize("shape", [(96, 24), (70, 770)], ids=str)
def test_outliers_of_a_row_are_its_own(way: str, threshold: float, shape: tuple[int, int]) -> None:
    """Values on the edge between two integers may go either way; without outliers apart the error is far larger."""
    weight, bias, x = drawn(*shape), drawn(shape[0]), drawn(40, shape[1]) * 2
    x[1], x[2, 3] = 0, 300
    layer = LLMInt8(threshold).prepare(LLMInt8().quantize(weight), Epilogue(torch.float32, bias), RowsHint(64))
    expected = RowByRow(weight, bias, threshold)(x)
    assert float((layer(x) - expected).norm() / expected.norm()) < 2e-3
    wanted = F.linear(x, weight, bias)
    rough = LLMInt8(0.0).prepare(LLMInt8().quantize(weight), Epilogue(torch.float32, bias), RowsHint(64))(x)
    off = [float((out - wanted)[2].norm() / wanted[2].norm()) for out in (layer(x), rough)]
    assert threshold == 0 or off[0] < off[1]


def test_an_activation_may_be_all_outliers_or_hold_no_number(way: str) -> None:
    layer = LLMInt8().prepare(LLMInt8().quantize(drawn(20, 40)), Epilogue(torch.float32), RowsHint(64))
    x = torch.full((3, 40), 7.0)
    x[1, 2] = torch.nan
    out = layer(x)
    assert out[1].isnan().all()
    torch.testing.assert_close(out[0], F.linear(x, drawn(20, 40))[0], rtol=2e-2, atol=0.5)
    assert torch.equal(out[0], out[2])


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bitsandbytes"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}, "bitsandbytes-fp4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}, "bitsandbytes-int8"),
        ({"quant_method": "bitsandbytes"}, None),
        ({"quant_method": "gptq", "load_in_8bit": True}, None),
    ],
)
def test_a_checkpoint_says_which(entry: dict[str, object], name: str | None) -> None:
    found = said(entry)
    assert (found and found.name) == name


def test_a_checkpoint_that_says_so_and_holds_none_is_refused() -> None:
    with pytest.raises(CheckpointError, match="stored as bitsandbytes, and no layer is"):
        NF4(stored=True).finish()
    NF4().finish()
