"""What layers and the sampler call: a kernel where there is one for these tensors, else the same by torch.

Owns that choice, and the operators that recorders see. Knows no layer.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.kernels import lookup, norm, select
from transduce.kernels.linear import TYPES, Activation, Kind, Packed
from transduce.kernels.linear import best as run_best
from transduce.kernels.linear import linear as run_linear
from transduce.kernels.linear import top_k_lse as run_top_k_lse
from transduce.kernels.load import library
from transduce.kernels.opaque import define, opaque, recording


def linear(w: Packed, x: Tensor, dtype: torch.dtype, times: Tensor | None, plus: Tensor | None) -> Tensor:
    """kernels.linear.linear with the library of this process; x [rows, in] -> [rows, out]."""
    if recording():
        result: Tensor = _linear(
            x, w.panels, w.bias, w.scale, w.offset, w.absmax, w.levels, w.threshold, w.inputs, w.outputs, w.kind,
            w.activation, dtype, times, plus,
        )  # fmt: skip
        return result
    native = library()
    assert native is not None, "packed weights are made where there are kernels"
    return run_linear(native, w, x, dtype, times, plus)


def linear_best(w: Packed, x: Tensor) -> tuple[Tensor, Tensor]:
    """kernels.linear.best with the library of this process; not for a forward that may be recorded."""
    native = library()
    assert native is not None, "packed weights are made where there are kernels"
    return run_best(native, w, x)


def linear_top_k_lse(w: Packed, x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """kernels.linear.top_k_lse with the library of this process; not for a forward that may be recorded."""
    native = library()
    assert native is not None, "packed weights are made where there are kernels"
    return run_top_k_lse(native, w, x, k)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias; x [rows, d], weight and bias [d]."""
    if _fits(x):
        return _layer_norm(x, weight, bias, eps)
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) in float32, rounded to weight's dtype, times weight; x [rows, d], weight [d]."""
    if _fits(x):
        return _rms_norm(x, weight, eps)
    mean = x.float().square().mean(-1, keepdim=True)
    return weight * (x * torch.rsqrt(mean + eps)).to(weight.dtype)


def look_up(ids: Tensor, table: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """table[ids] * scale[ids], rounded to dtype; ids [rows] int64, table [.., d] int8, scale [..] -> [rows, d]."""
    if table.device.type == "cpu" and dtype in TYPES and library() is not None:
        return _look_up(ids, table, scale, dtype)
    return (F.embedding(ids, table) * scale[ids, None]).to(dtype)


def best(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest of each row of scores [rows, vocab] and its index, the lowest of equals: two [rows]."""
    native = library() if _fits(scores) else None
    if native is None:
        values, indices = scores.max(-1)
        return values, indices
    indices = select.argmax(native, scores)
    return scores.gather(1, indices[:, None])[:, 0], indices


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest of each row of scores [rows, vocab], float32, best first, and their indices: two [rows, k].

    Of equals the lower index comes first; 1 <= k <= vocab.
    """
    native = library() if _fits(scores) else None
    if native is None:
        values, indices = scores.float().sort(dim=-1, descending=True, stable=True)
        return values[:, :k], indices[:, :k]
    return select.top_k(native, scores, k)


def top_k_lse(scores: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `top_k`, and the logarithm of each row's sum of exponentials, float32 [rows]."""
    native = library() if _fits(scores) else None
    if native is None:
        return *top_k(scores, k), scores.float().logsumexp(-1)
    return select.top_k_lse(native, scores, k)


def _fits(x: Tensor) -> bool:
    """Whether there are kernels for such rows."""
    return x.device.type == "cpu" and x.dtype in TYPES and library() is not None


def _like(x: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape)


@opaque("layer_norm(Tensor x, Tensor weight, Tensor bias, float eps) -> Tensor", _like)
def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    native = library()
    assert native is not None
    return norm.layer_norm(native, x, weight, bias, eps)


def _looked_up(ids: Tensor, table: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return table.new_empty((len(ids), table.shape[1]), dtype=dtype)


@opaque("look_up(Tensor ids, Tensor table, Tensor scale, ScalarType dtype) -> Tensor", _looked_up)
def _look_up(ids: Tensor, table: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    native = library()
    assert native is not None
    return lookup.look_up(native, ids, table, scale, dtype)


@opaque("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", _like)
def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    native = library()
    assert native is not None
    return norm.rms_norm(native, x, weight, eps)


def _run_linear(
    x: Tensor,
    panels: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    offset: Tensor | None,
    absmax: Tensor | None,
    levels: Tensor | None,
    threshold: float,
    inputs: int,
    outputs: int,
    kind: int,
    activation: int,
    dtype: torch.dtype,
    times: Tensor | None,
    plus: Tensor | None,
) -> Tensor:
    sizes = (inputs, outputs, Kind(kind), Activation(activation))
    packed = Packed(panels, bias, scale, offset, *sizes, absmax, levels, threshold)
    native = library()
    assert native is not None
    return run_linear(native, packed, x, dtype, times, plus)


def _shape_of_linear(x: Tensor, *rest: object) -> Tensor:
    outputs, dtype = rest[8], rest[11]
    assert isinstance(outputs, int)
    assert isinstance(dtype, torch.dtype)
    return x.new_empty((x.shape[0], outputs), dtype=dtype)


_linear = define(
    "linear(Tensor x, Tensor panels, Tensor? bias, Tensor? scale, Tensor? offset, Tensor? absmax, Tensor? levels,"
    " float threshold, int inputs, int outputs, int kind, int activation, ScalarType dtype, Tensor? times,"
    " Tensor? plus) -> Tensor",
    _run_linear,
    _shape_of_linear,
    ["CPU"],
)
