"""The opaque operators: one node per call in a recording, which is right for every later batch."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from tests.attention.batches import CPU, Heads, Span, attends, batch
from transduce.attention import backends, ops
from transduce.attention.base import Attend, AttentionBackend, Meta, Segments

HEADS = Heads(2, 4, 32)
each_backend = pytest.mark.parametrize("backend", backends(), ids=lambda backend: backend.caps.name)
each_way = pytest.mark.parametrize("way", ["causal", "causal bias", "window"])


def layer(backend: AttentionBackend, attend: Attend, meta: Meta, x: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
    """A forward that writes, then reads: x [tokens, heads + 2 kv_heads, head_dim]."""
    q, k, v = x.split((HEADS.heads, HEADS.kv_heads, HEADS.kv_heads), dim=1)
    ops.write(backend, cache, k, v, slots)
    return 2 * ops.read(backend, q, cache, meta, 0, attend)


def segments(kv_len: list[int]) -> Segments:
    """One new token per segment, each in two blocks of its own."""
    count = len(kv_len)
    lengths = np.array(kv_len, np.int32)
    blocks = np.arange(1, 2 * count + 1, dtype=np.int32).reshape(count, 2, 1)
    blocks[lengths <= 16, 1] = 0
    blocks[lengths == 0] = 0
    return Segments(
        np.ones(count, np.int32), np.maximum(lengths - 1, 0), lengths, blocks, np.arange(count, dtype=np.int32)
    )


def new_slots(step: Segments) -> Tensor:
    """Where each segment's new token goes; those that see nothing write to block 0."""
    place = step.q_pos // 16
    slots = step.blocks[np.arange(len(place)), place, 0] * 16 + step.q_pos % 16
    return torch.from_numpy(np.where(step.kv_len > 0, slots, 0).astype(np.int64))


@each_backend
@each_way
def test_a_recording_is_right_for_later_batches(backend: AttentionBackend, way: str) -> None:
    torch.manual_seed(0)
    attend, first = attends(HEADS)[way], segments([1, 17, 30, 0])
    meta = backend.plan(first, None)
    x, slots = torch.randn(4, 8, 32), new_slots(first)
    cache = backend.cache(9, HEADS.kv_heads, HEADS.head_dim, 16, torch.float32, CPU)
    recorded = make_fx(lambda x, cache, slots, *meta: layer(backend, attend, meta, x, cache, slots))(
        x, cache, slots, *meta
    )
    names = [str(node.target) for node in recorded.graph.nodes if node.op == "call_function"]
    assert [name for name in names if "attention" in name] == [
        "transduce.attention_write.default",
        "transduce.attention_read.default",
    ]
    assert len(names) == 7, "split, its three parts, write, read, multiply"

    eager_cache = cache.clone()
    for kv_len in ([2, 18, 31, 1], [3, 1, 32, 2], [0, 2, 17, 0]):
        step = segments(kv_len)
        backend.plan(step, meta)
        x.normal_()
        slots.copy_(new_slots(step))
        eager = layer(backend, attend, backend.plan(step, None), x, eager_cache, slots)
        assert torch.equal(recorded(x, cache, slots, *meta), eager)
        assert torch.equal(cache, eager_cache)
        assert eager.count_nonzero() > 0


class Names(TorchDispatchMode):
    """Collects the names of the operators that are dispatched."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@each_backend
@pytest.mark.parametrize("inference", [True, False])
def test_a_dispatch_mode_sees_one_call_each(backend: AttentionBackend, inference: bool) -> None:
    step = segments([5, 20])
    meta, slots = backend.plan(step, None), new_slots(step)
    cache = backend.cache(5, HEADS.kv_heads, HEADS.head_dim, 16, torch.float32, CPU)
    with torch.inference_mode(inference), Names() as names:
        layer(backend, attends(HEADS)["causal"], meta, torch.randn(2, 8, 32), cache, slots)
    assert [name for name in names.seen if "attention" in name or "index" in name] == [
        "transduce.attention_write.default",
        "transduce.attention_read.default",
    ]
    assert not [name for name in names.seen if "item" in name or "local_scalar" in name]


@each_backend
def test_operators_give_what_the_backend_gives(backend: AttentionBackend) -> None:
    pages = batch(backend, [Span(3, 10, 13, 0), Span(1, 40, 41, 1)], HEADS, torch.float32)
    meta = backend.plan(pages.segments, None)
    for attend in (attends(HEADS)["window"], attends(HEADS)["causal bias"]):
        opaque = ops.read(backend, pages.q, pages.cache, meta, 0, attend)
        assert torch.equal(opaque, backend.read(pages.q, pages.cache, meta, 0, attend))


@each_backend
def test_shapes_are_known_without_data(backend: AttentionBackend) -> None:
    meta = backend.plan(segments([5, 20]), None)
    with FakeTensorMode(allow_non_fake_inputs=True):
        q, k = torch.empty(2, 4, 32, dtype=torch.bfloat16), torch.empty(2, 2, 32)
        cache = torch.empty(5, 16, 2, 2, 32)
        ops.write(backend, cache, k, k, torch.empty(2, dtype=torch.int64))
        out = ops.read(backend, q, cache, meta, 0, attends(HEADS)["causal"])
    assert (out.shape, out.dtype) == (q.shape, q.dtype)
