"""Reads and writes of paged attention as opaque operators: a recorder of the forward sees one node per call.

Owns the operators `attention_read` and `attention_write`, and the functions that layers call. A recorded call
reads its meta and cache anew at every replay, so one recording is right for every later batch.
"""

from torch import Tensor

from transduce.attention import named
from transduce.attention.base import Attend, AttentionBackend, Meta
from transduce.kernels.opaque import define, recording

DEVICES = ("CPU", "CUDA")


def write(backend: AttentionBackend, cache: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
    """AttentionBackend.write: store k, v [tokens, kv_heads, head_dim] at slots [tokens]."""
    if recording():
        _write(backend.caps.name, cache, k, v, slots)
    else:
        backend.write(cache, k, v, slots)


def read(backend: AttentionBackend, q: Tensor, cache: Tensor, meta: Meta, slab: int, attend: Attend) -> Tensor:
    """AttentionBackend.read: attention of q [tokens, heads, head_dim] over pages, of the same shape."""
    if not recording():
        return backend.read(q, cache, meta, slab, attend)
    result: Tensor = _read(
        backend.caps.name,
        q,
        cache,
        meta,
        slab,
        attend.scale,
        attend.causal,
        attend.bias,
        attend.softcap,
        attend.window,
    )
    return result


def _run_write(backend: str, cache: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
    named(backend).write(cache, k, v, slots)


def _run_read(
    backend: str,
    q: Tensor,
    cache: Tensor,
    meta: list[Tensor],
    slab: int,
    scale: float,
    causal: bool,
    bias: Tensor | None,
    softcap: float | None,
    window: int | None,
) -> Tensor:
    return named(backend).read(q, cache, tuple(meta), slab, Attend(scale, causal, bias, softcap, window))


def _shape_of_write(*_: object) -> None: ...


def _shape_of_read(_: str, q: Tensor, *__: object) -> Tensor:
    return q.new_empty(q.shape)


_write = define(
    "attention_write(str backend, Tensor(a!) cache, Tensor k, Tensor v, Tensor slots) -> ()",
    _run_write,
    _shape_of_write,
    DEVICES,
)
_read = define(
    "attention_read(str backend, Tensor q, Tensor cache, Tensor[] meta, int slab, float scale, bool causal,"
    " Tensor? bias, float? softcap, int? window) -> Tensor",
    _run_read,
    _shape_of_read,
    DEVICES,
)
