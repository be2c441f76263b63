"""Attention of packed items to themselves.

A row's bits depend on its item and its place there alone: not on the other items, nor on the number of threads.
Knows no pages.
"""

from collections.abc import Callable, Sequence
from ctypes import CDLL, POINTER, Structure, addressof, byref, c_float, c_int32, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor

UNBOUNDED = 1 << 62
"""A window that hides no key."""


class _Call(Structure):
    """What varlen.cpp calls Varlen."""

    _fields_ = (
        *((name, c_void_p) for name in ("q", "k", "v", "out", "lengths", "bias")),
        *((name, c_int64) for name in ("items", "q_row", "k_row", "v_row")),
        *((name, c_int64) for name in ("heads", "kv_heads", "head_dim", "reach", "window")),
        *((name, c_float) for name in ("scale", "softcap")),
        *((name, c_int32) for name in ("causal", "bfloat16")),
    )


def varlen(
    library: CDLL,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Sequence[int],
    scale: float,
    causal: bool = False,
    bias: Tensor | None = None,
    softcap: float | None = None,
    window: int | None = None,
) -> Tensor:
    """Self-attention of items that are runs of rows, one per length: [rows, heads, head_dim], contiguous.

    q [rows, heads, head_dim], k and v [rows, kv_heads, head_dim], float32 or bfloat16; rows may lie apart.
    bias: float32 [heads, 2R+1] by clamp(k_pos - q_pos, -R, R) + R. The other arguments are as in attention.Attend;
    scale > 0.
    """
    q, k, v = (_rows_apart(x) for x in (q, k, v))
    rows, heads, head_dim = q.shape
    assert k.shape == v.shape == (rows, k.shape[1], head_dim)
    assert q.dtype == k.dtype == v.dtype
    assert q.dtype in {torch.float32, torch.bfloat16}
    assert sum(lengths) == rows
    assert scale > 0
    bias = None if bias is None else bias.float().contiguous()
    assert bias is None or bias.shape[0] == heads
    out = torch.empty(q.shape, dtype=q.dtype)
    counts = (c_int64 * len(lengths))(*lengths)
    call = _Call(
        *(x.data_ptr() for x in (q, k, v, out)),
        addressof(counts),
        None if bias is None else bias.data_ptr(),
        len(lengths),
        *(x.stride(0) for x in (q, k, v)),
        heads,
        k.shape[1],
        head_dim,
        0 if bias is None else bias.shape[1] // 2,
        UNBOUNDED if window is None else window,
        scale,
        softcap or 0.0,
        causal,
        q.dtype == torch.bfloat16,
    )
    _kernel(library)(byref(call))
    return out


def _rows_apart(x: Tensor) -> Tensor:
    """x, copied unless each of its rows is contiguous."""
    return x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()


@cache
def _kernel(library: CDLL) -> Callable[..., None]:
    kernel = library.td_varlen
    kernel.argtypes = [POINTER(_Call)]
    kernel.restype = None
    return kernel
