"""LayerNorm and RMSNorm over rows: statistics in float32, and a row's bits depend on nothing but the row.

Rounds as the models' own modules do. Knows no layer.
"""

from collections.abc import Callable
from ctypes import CDLL, c_float, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor

from transduce.kernels import tape

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}


def layer_norm(library: CDLL, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias, in x's dtype: float32 or bfloat16.

    x [rows, d], contiguous; weight and bias [d], of x's dtype or float32. Rounded once.
    """
    assert bias.dtype == weight.dtype
    assert bias.shape == weight.shape
    out = _like(x, weight)
    rows, d = x.shape
    kernel = _kernel(library, "td_layer_norm", 3, x.dtype, weight.dtype)
    arguments = (x.data_ptr(), weight.data_ptr(), bias.data_ptr(), rows, d, eps, out.data_ptr())
    tape.run(kernel, arguments, x, weight, bias, out)
    return out


def rms_norm(library: CDLL, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps), rounded to weight's dtype, times weight; in x's dtype: float32 or bfloat16.

    x [rows, d], contiguous; weight [d], of x's dtype or float32.
    """
    out = _like(x, weight)
    rows, d = x.shape
    kernel = _kernel(library, "td_rms_norm", 2, x.dtype, weight.dtype)
    tape.run(kernel, (x.data_ptr(), weight.data_ptr(), rows, d, eps, out.data_ptr()), x, weight, out)
    return out


def _like(x: Tensor, weight: Tensor) -> Tensor:
    assert x.is_contiguous()
    assert weight.is_contiguous()
    assert weight.shape == x.shape[1:]
    return tape.empty(x.shape, x.dtype)


@cache
def _kernel(library: CDLL, name: str, inputs: int, x: torch.dtype, weight: torch.dtype) -> Callable[..., None]:
    """The kernel for these dtypes; its arguments are so many tensors, rows, d, eps and the result."""
    kernel = library[f"{name}_{NAMES[x]}_{NAMES[weight]}"]
    kernel.argtypes = [*[c_void_p] * inputs, c_int64, c_int64, c_float, c_void_p]
    kernel.restype = None
    return kernel
