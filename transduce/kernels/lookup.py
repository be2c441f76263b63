"""Rows of a table of integers, as floats. Knows no layer."""

from collections.abc import Callable
from ctypes import CDLL, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor

from transduce.kernels import tape

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}


def look_up(library: CDLL, ids: Tensor, table: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """table[ids] * scale[ids], rounded once to dtype: ids [rows] int64, table [.., d] int8, scale [..] float32.

    All contiguous. An id outside the table is the caller's bug.
    """
    assert ids.is_contiguous()
    assert table.is_contiguous()
    d = table.shape[1]
    out = tape.empty((len(ids), d), dtype)
    arguments = (ids.data_ptr(), len(ids), table.data_ptr(), scale.data_ptr(), d, out.data_ptr())
    tape.run(_kernel(library, dtype), arguments, ids, table, scale, out)
    return out


@cache
def _kernel(library: CDLL, dtype: torch.dtype) -> Callable[..., None]:
    kernel = library[f"td_look_up_{NAMES[dtype]}"]
    kernel.argtypes = [c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_void_p]
    kernel.restype = None
    return kernel
