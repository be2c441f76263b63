"""Reads, writes and copies of a paged KV cache: the kernels' arguments, declared once.

A cache [blocks, 2 (keys, values), kv_heads, ...] is contiguous. Its words of four bytes hold one float32, two bfloat16
or four int8, those that one dot product takes: keys lie as [head_dim / word, block_size, word], values as
[block_size / word, head_dim, word]. A row of int8 is multiples of a float of its own, its greatest magnitude by 127;
these floats [block_size] come after it, and bytes of keys have 128 added. Knows no block table's owner, and no step.
"""

from collections.abc import Callable, Sequence
from ctypes import CDLL, POINTER, Structure, byref, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from transduce.kernels import tape

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int8: "i8"}

WORD = {torch.float32: 1, torch.bfloat16: 2, torch.int8: 4}
"""Elements in a word: block_size and head_dim are multiples of it."""

SCALE = {torch.float32: 0, torch.bfloat16: 0, torch.int8: 4}
"""Elements in a row's float."""


def block_shape(kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> tuple[int, ...]:
    """Shape of one block of a cache of `dtype`."""
    return (2, kv_heads, head_dim + SCALE[dtype], block_size)


def rows(pages: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values [blocks, block_size, kv_heads, head_dim] that pages hold; floats."""
    word, size = WORD[pages.dtype], pages.shape[4]
    head_dim = pages.shape[3] - SCALE[pages.dtype]
    keys, values = pages.flatten(3)[..., : head_dim * size].unbind(1)
    k = keys.unflatten(2, (head_dim // word, size, word)).transpose(2, 3).flatten(3)
    v = values.unflatten(2, (size // word, head_dim, word)).transpose(3, 4).flatten(2, 3)
    if pages.dtype == torch.int8:
        scales = pages.flatten(3)[..., head_dim * size :].contiguous().view(torch.float32)[..., None]
        k, v = (k ^ -128) * scales[:, 0], v * scales[:, 1]
    return k.transpose(1, 2), v.transpose(1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Which rows read what; int32, contiguous.

    runs [4, runs]: of neighbouring rows that read the same keys, the first row, how many (0: no run), kv_len, and the
    row of `blocks` [segments, max_blocks] with the block ids. positions [tokens]: of each query.
    """

    runs: Tensor
    positions: Tensor
    blocks: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """How a query weighs keys. bias [heads, 2R+1]: float32, contiguous. softcap, window: 0 for none."""

    scale: float
    causal: bool
    bias: Tensor | None
    softcap: float
    window: int


def read(
    library: CDLL, q: Tensor, pages: Tensor, reading: Reading, scoring: Scoring, lse: Tensor | None = None
) -> Tensor:
    """Attention of q [tokens, heads, head_dim] over pages: [tokens, heads, head_dim]; zeros where nothing is seen.

    Rows of q may lie apart. lse [tokens, heads], float32 and contiguous, is filled if given.
    """
    q = _rows(q, pages)
    tokens, heads, head_dim = q.shape
    runs, positions, blocks = reading.runs, reading.positions, reading.blocks
    bias = scoring.bias
    assert len(positions) == tokens
    assert head_dim == pages.shape[3] - SCALE[pages.dtype]
    assert blocks.is_contiguous()
    out = tape.empty((tokens, heads, head_dim), q.dtype)
    arguments = _Read(
        q.data_ptr(),
        pages.data_ptr(),
        out.data_ptr(),
        None if lse is None else lse.data_ptr(),
        runs.data_ptr(),
        positions.data_ptr(),
        blocks.data_ptr(),
        q.stride(0),
        runs.shape[1],
        blocks.shape[1],
        heads // pages.shape[2],
        pages.shape[2],
        head_dim,
        pages.shape[4],
        scoring.causal,
        scoring.window,
        scoring.scale,
        scoring.softcap,
        None if bias is None else bias.data_ptr(),
        0 if bias is None else bias.shape[1] // 2,
    )
    tape.run(_kernel(library, "read", q.dtype, pages.dtype), (byref(arguments),), q, pages, out, lse, reading, scoring)
    return out


def write(library: CDLL, pages: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
    """Store k, v [tokens, kv_heads, head_dim] at slots [tokens] (block * block_size + offset), int64.

    Rows of k and of v may lie apart. Of tokens that go to one slot, the last one stays.
    """
    k, v = _rows(k, pages), _rows(v, pages)
    kv_heads, head_dim = k.shape[1:]
    assert k.shape == v.shape == (len(slots), kv_heads, head_dim)
    assert pages.shape[1:4] == (2, kv_heads, head_dim + SCALE[pages.dtype])
    assert slots.is_contiguous()
    arguments = _Write(
        pages.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        slots.data_ptr(),
        k.stride(0),
        v.stride(0),
        len(slots),
        kv_heads,
        head_dim,
        pages.shape[4],
    )
    tape.run(_kernel(library, "write", k.dtype, pages.dtype), (byref(arguments),), pages, k, v, slots)


def copy(library: CDLL, caches: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
    """In each cache, all of one shape, copy blocks (source, destination): all sources are read before any write."""
    ids = np.array(pairs, dtype=np.int64)
    addresses = (c_void_p * len(caches))(*(cache.data_ptr() for cache in caches))
    _copy_kernel(library)(addresses, len(caches), caches[0][0].nbytes, ids.ctypes.data, len(pairs))


def _rows(x: Tensor, pages: Tensor) -> Tensor:
    """x [tokens, heads, head_dim] in the pages' dtype, or in its own where pages are integers; each row contiguous."""
    dtype = x.dtype if pages.dtype == torch.int8 else pages.dtype
    if x.dtype == dtype and x.stride()[1:] == (x.shape[2], 1):
        return x
    assert not tape.taping(), "a copy would not be made again"
    return x.to(dtype).contiguous()


class _Read(Structure):
    """`Read` of paged.cpp."""

    _fields_ = (
        ("q", c_void_p),
        ("cache", c_void_p),
        ("out", c_void_p),
        ("lse", c_void_p),
        ("runs", c_void_p),
        ("positions", c_void_p),
        ("blocks", c_void_p),
        ("q_stride", c_int64),
        ("run_count", c_int32),
        ("max_blocks", c_int32),
        ("group", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
        ("causal", c_int32),
        ("window", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("bias", c_void_p),
        ("reach", c_int32),
    )


class _Write(Structure):
    """`Write` of paged.cpp."""

    _fields_ = (
        ("cache", c_void_p),
        ("k", c_void_p),
        ("v", c_void_p),
        ("slots", c_void_p),
        ("k_stride", c_int64),
        ("v_stride", c_int64),
        ("tokens", c_int64),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
    )


ARGUMENTS = {"read": _Read, "write": _Write}


@cache
def _kernel(library: CDLL, name: str, dtype: torch.dtype, pages: torch.dtype) -> Callable[..., None]:
    kernel = library[f"td_paged_{name}_{NAMES[dtype]}_{NAMES[pages]}"]
    kernel.argtypes, kernel.restype = [POINTER(ARGUMENTS[name])], None
    return kernel


@cache
def _copy_kernel(library: CDLL) -> Callable[..., None]:
    kernel = library["td_copy_blocks"]
    kernel.argtypes, kernel.restype = (POINTER(c_void_p), c_int64, c_int64, c_void_p, c_int64), None
    return kernel
