"""Argmax, top-k and log-sum-exp over rows of logits, in one pass over them.

NaN ranks above all numbers, as in torch; of equal logits the one with the lower index comes first. A row's answer, bit
for bit, depends on nothing but the row. Knows no sampler.
"""

from collections.abc import Callable
from ctypes import CDLL, c_int, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}


def argmax(library: CDLL, logits: Tensor) -> Tensor:
    """Index of the greatest logit, int64 [rows]; logits [rows, vocab], float32 or bfloat16, each row contiguous."""
    assert logits.stride(1) == 1
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64)
    _kernel(library, "td_argmax", logits.dtype)(logits.data_ptr(), rows, vocab, logits.stride(0), out.data_ptr())
    return out


def top_k(library: CDLL, logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest logits, float32 [rows, k] descending, and their indices, int64 [rows, k]; 1 <= k <= vocab.

    logits [rows, vocab], float32 or bfloat16, each row contiguous.
    """
    return _top_k(library, logits, k, lse=None)


def top_k_lse(library: CDLL, logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `top_k`, and the logarithm of each row's sum of exponentials, float32 [rows]."""
    lse = torch.empty(len(logits))
    return *_top_k(library, logits, k, lse), lse


def _top_k(library: CDLL, logits: Tensor, k: int, lse: Tensor | None) -> tuple[Tensor, Tensor]:
    rows, vocab = logits.shape
    assert logits.stride(1) == 1
    assert 1 <= k <= vocab
    values, indices = torch.empty(rows, k), torch.empty(rows, k, dtype=torch.int64)
    outputs = (values.data_ptr(), indices.data_ptr(), None if lse is None else lse.data_ptr())
    _kernel(library, "td_top_k", logits.dtype)(logits.data_ptr(), rows, vocab, logits.stride(0), k, *outputs)
    return values, indices


ARGUMENTS = {
    "td_argmax": (c_void_p, c_int64, c_int64, c_int64, c_void_p),
    "td_top_k": (c_void_p, c_int64, c_int64, c_int64, c_int, c_void_p, c_void_p, c_void_p),
}


@cache
def _kernel(library: CDLL, name: str, dtype: torch.dtype) -> Callable[..., None]:
    kernel = library[f"{name}_{NAMES[dtype]}"]
    kernel.argtypes, kernel.restype = ARGUMENTS[name], None
    return kernel
