"""Linear layers over packed weights: floats of 32 or 16 bits, 4-bit codes of such, or 8-bit integers with a scale each.

Integer layers quantize each row of activations by its own largest magnitude, to 8 bits or to 15, or by the largest that
is no outlier. A row's result never depends on the other rows. Knows no scheme: where codes, integers and scales come
from is the caller's business.
"""

from ctypes import CDLL, POINTER, Structure, addressof, byref, c_float, c_int, c_int32, c_int64, c_void_p
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any

import torch
from torch import Tensor

from transduce.kernels import tape
from transduce.kernels.memory import arena

OUTPUTS = 64
"""Outputs of packed weights are padded to a multiple of this, with zeros."""

LANES = 16
"""Outputs of a panel."""

STEP_BYTES = 64
"""Each output's weights are padded to a multiple of this."""


class Kind(IntEnum):
    """What a packed weight holds; numbered as in words.h. INT8X2: integers too, but two of them for an activation.

    LLM_INT8: integers too, which an activation's outliers meet as floats.
    """

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    INT8X2 = 3
    LLM_INT8 = 4


class Activation(IntEnum):
    """What follows the product; numbered as in linear.h."""

    NONE = 0
    RELU = 1
    GELU = 2
    GELU_NEW = 3
    SILU = 4


KINDS = {torch.float32: Kind.FLOAT32, torch.bfloat16: Kind.BFLOAT16, torch.int8: Kind.INT8}
TYPES = {torch.float32: 0, torch.bfloat16: 1}


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A linear layer as the kernel takes it.

    panels: [padded outputs / 16, steps, 16 words, 16 outputs, 4 bytes], uint8, or as codes.h says. bias: [padded
    outputs], float32. scale, offset: [padded outputs] of integers, float32 and int32: what one is worth, and 128 times
    their sum. absmax, levels: of codes, [padded outputs / 16, padded inputs / run, 16] and [16], float32: what a run of
    inputs has in common, and what a code stands for. threshold: of LLM_INT8, the magnitude from which outliers are.
    """

    panels: Tensor
    bias: Tensor | None
    scale: Tensor | None
    offset: Tensor | None
    inputs: int
    outputs: int
    kind: Kind
    activation: Activation
    absmax: Tensor | None = None
    levels: Tensor | None = None
    threshold: float = 0.0
    argument: "_Linear" = field(init=False, repr=False)
    address: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tensors = (self.panels, self.bias, self.scale, self.offset, self.absmax, self.levels)
        sizes = (self.inputs, self.outputs, self.run)
        argument = _Linear(*map(_address, tensors), *sizes, self.kind, self.activation, self.threshold)
        object.__setattr__(self, "argument", argument)
        object.__setattr__(self, "address", addressof(argument))

    @property
    def run(self) -> int:
        """Of codes: how many inputs have an absmax in common; else 0."""
        return 0 if self.absmax is None else _step_padded(self.inputs, self.kind) // self.absmax.shape[1]


def quantize(library: CDLL, weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [out, in], float32 or bfloat16, as int8 [out, in] times scale [out], float32: symmetric, per output."""
    out, inputs = weight.shape
    assert weight.stride(1) == 1
    integers, scale = torch.empty(out, inputs, dtype=torch.int8), torch.empty(out)
    _kernel(library, "td_quantize")(byref(_matrix(weight)), out, inputs, integers.data_ptr(), scale.data_ptr())
    return integers, scale


def pack(
    library: CDLL,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    activation: Activation = Activation.NONE,
    wide: bool = False,
    threshold: float = 0.0,
) -> Packed:
    """weight [out, in], float32, bfloat16, or int8 with a scale [out]; bias [out] of any float type.

    wide: activations meet integer weights as 15-bit integers rather than as 8-bit ones. threshold: above 0, those of
    at least this magnitude meet integer weights as the floats they are.
    """
    weight, kind = weight.contiguous(), KINDS[weight.dtype]
    assert (kind is Kind.INT8) == (scale is not None)
    assert kind is Kind.INT8 or not (wide or threshold)
    assert not (wide and threshold)
    kind = Kind.INT8X2 if wide else Kind.LLM_INT8 if threshold else kind
    out, inputs = weight.shape
    padded = -(-out // OUTPUTS) * OUTPUTS
    row = -(-inputs * weight.itemsize // STEP_BYTES) * STEP_BYTES
    panels = arena().zeros(padded * row)
    offset = None if scale is None else torch.zeros(padded, dtype=torch.int32)
    _kernel(library, "td_pack")(kind, weight.data_ptr(), out, inputs, panels.data_ptr(), _address(offset))
    biases, scales = _padded(bias, padded), _padded(scale, padded)
    return Packed(panels, biases, scales, offset, inputs, out, kind, activation, threshold=threshold)


def pack_codes(
    library: CDLL,
    codes: Tensor,
    absmax: Tensor,
    levels: Tensor,
    dtype: torch.dtype,
    bias: Tensor | None,
    activation: Activation = Activation.NONE,
) -> Packed:
    """A weight [out, in] of levels[code] * absmax, float32, rounded to `dtype` while rows are multiplied by it.

    codes [out, in / 2], uint8, the first of two inputs in the high half. absmax [out, in / run], float32, where run
    is even and divides in, and divides 32 or is a multiple of it. levels [16], float32. dtype: float32 or bfloat16.
    """
    out, inputs = codes.shape[0], codes.shape[1] * 2
    kind, padded = KINDS[dtype], -(-out // OUTPUTS) * OUTPUTS
    run, row = inputs // absmax.shape[1], _step_padded(inputs, kind)
    codes, absmax, panels = codes.contiguous(), absmax.contiguous(), arena().zeros(padded * row // 2)
    runs = arena().zeros(padded * row // run * 4).view(torch.float32).view(padded // LANES, row // run, LANES)
    addresses = (codes.data_ptr(), absmax.data_ptr())
    _kernel(library, "td_pack_codes")(kind, *addresses, out, inputs, run, panels.data_ptr(), runs.data_ptr())
    return Packed(panels, _padded(bias, padded), None, None, inputs, out, kind, activation, runs, levels)


def linear(
    library: CDLL, w: Packed, x: Tensor, dtype: torch.dtype, times: Tensor | None = None, plus: Tensor | None = None
) -> Tensor:
    """activation(x · weightᵀ + bias) [* times] [+ plus]: x [rows, in] -> [rows, out] in dtype, rounded once.

    x: float32 or bfloat16. times, plus: [rows, out] in dtype. Rows of all three may lie apart.
    """
    rows, inputs = x.shape
    row, element = x.stride()
    assert inputs == w.inputs
    assert element == 1
    out = tape.empty((rows, w.outputs), dtype)
    result = (out.data_ptr(), w.outputs, TYPES[dtype], *_operand(times, out), *_operand(plus, out))
    arguments = (w.address, rows, x.data_ptr(), row, TYPES[x.dtype], *result)
    tape.run(_kernel(library, "td_linear"), arguments, w, x, out, times, plus)
    return out


def best(library: CDLL, w: Packed, x: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest of x · weightᵀ + bias in each row, float32 [rows], and its index, the lowest of equals, int64.

    x [rows, in]: float32 or bfloat16. A NaN is no greatest: a row without numbers gives -inf.
    """
    assert w.activation is Activation.NONE
    assert x.shape[1] == w.inputs
    assert x.stride(1) == 1
    rows = x.shape[0]
    values, indices = torch.empty(rows), torch.empty(rows, dtype=torch.int64)
    _kernel(library, "td_linear_best")(w.address, rows, byref(_matrix(x)), values.data_ptr(), indices.data_ptr())
    return values, indices


def top_k_lse(library: CDLL, w: Packed, x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """`select.top_k_lse` of x · weightᵀ + bias in float32, bit for bit, which never is in memory as a whole.

    x [rows, in]: float32 or bfloat16; 1 <= k <= out.
    """
    assert w.activation is Activation.NONE
    assert x.shape[1] == w.inputs
    assert x.stride(1) == 1
    assert 1 <= k <= w.outputs
    rows = x.shape[0]
    values, indices, lse = torch.empty(rows, k), torch.empty(rows, k, dtype=torch.int64), torch.empty(rows)
    outputs = (values.data_ptr(), indices.data_ptr(), lse.data_ptr())
    _kernel(library, "td_linear_top_k")(w.address, rows, byref(_matrix(x)), k, *outputs)
    return values, indices, lse


class _Linear(Structure):
    """`Linear` of linear.h."""

    _fields_ = (
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("scale", c_void_p),
        ("offset", c_void_p),
        ("absmax", c_void_p),
        ("levels", c_void_p),
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("run", c_int64),
        ("kind", c_int32),
        ("activation", c_int32),
        ("threshold", c_float),
    )


class _Matrix(Structure):
    """`Matrix` of linear.h."""

    _fields_ = (("data", c_void_p), ("row", c_int64), ("type", c_int32))


def _matrix(x: Tensor) -> _Matrix:
    return _Matrix(x.data_ptr(), x.stride(0), TYPES[x.dtype])


def _operand(x: Tensor | None, out: Tensor) -> tuple[int | None, int]:
    if x is None:
        return None, 0
    row, element = x.stride()
    assert x.shape == out.shape
    assert x.dtype == out.dtype
    assert element == 1
    return x.data_ptr(), row


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _step_padded(inputs: int, kind: Kind) -> int:
    """Inputs of floats, padded to whole steps."""
    step = STEP_BYTES // (4 if kind is Kind.FLOAT32 else 2)
    return -(-inputs // step) * step


def _padded(x: Tensor | None, size: int) -> Tensor | None:
    if x is None:
        return None
    out = torch.zeros(size)
    out[: len(x)] = x
    return out


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "td_quantize": (POINTER(_Matrix), c_int64, c_int64, c_void_p, c_void_p),
    "td_pack": (c_int32, c_void_p, c_int64, c_int64, c_void_p, c_void_p),
    "td_pack_codes": (c_int32, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p),
    "td_linear": (c_void_p, c_int64, *[c_void_p, c_int64, c_int32] * 2, *[c_void_p, c_int64] * 2),
    "td_linear_best": (c_void_p, c_int64, POINTER(_Matrix), c_void_p, c_void_p),
    "td_linear_top_k": (c_void_p, c_int64, POINTER(_Matrix), c_int, c_void_p, c_void_p, c_void_p),
}


@cache
def _kernel(library: CDLL, name: str) -> Any:
    kernel = library[name]
    kernel.argtypes, kernel.restype = ARGUMENTS[name], None
    return kernel
