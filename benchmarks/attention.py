"""Milliseconds per decode step of one attention layer (12 heads of 64, 128 keys), per backend, dtype and batch.

python -m benchmarks.attention [threads]
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from transduce.attention import backends, ops
from transduce.attention.base import Attend, AttentionBackend, Segments

HEADS, HEAD_DIM, BLOCK_SIZE, KEYS = 12, 64, 16, 128


def segments(batch: int) -> Segments:
    """One query per sequence, each over scattered blocks of its own."""
    blocks = np.random.default_rng(0).permutation(batch * KEYS // BLOCK_SIZE) + 1
    kv_len = np.full(batch, KEYS, np.int32)
    return Segments(
        q_len=np.ones(batch, np.int32),
        q_pos=kv_len - 1,
        kv_len=kv_len,
        blocks=blocks.reshape(batch, -1, 1).astype(np.int32),
        table=np.arange(batch, dtype=np.int32),
    )


def milliseconds(call: Callable[[], object], repeats: int = 15) -> float:
    """The median over some calls."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def measure(backend: AttentionBackend, dtype: torch.dtype, batch: int) -> tuple[float, float]:
    """Milliseconds of one read and of one write."""
    step = segments(batch)
    pages = batch * KEYS // BLOCK_SIZE + 1
    cache = backend.cache(pages, HEADS, HEAD_DIM, BLOCK_SIZE, dtype, torch.device("cpu"))
    q = torch.randn(batch, HEADS, HEAD_DIM, dtype=dtype)
    slots = torch.from_numpy(step.blocks[:, -1, 0].astype(np.int64) * BLOCK_SIZE)
    meta, attend = backend.plan(step, None), Attend(HEAD_DIM**-0.5, causal=True)
    return (
        milliseconds(lambda: ops.read(backend, q, cache, meta, 0, attend)),
        milliseconds(lambda: ops.write(backend, cache, q, q, slots)),
    )


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else torch.get_num_threads())
    print(f"{'backend':10} {'dtype':15} {'batch':>5} {'read ms':>9} {'write ms':>9}")
    with torch.inference_mode():
        for backend in backends():
            for dtype in (torch.bfloat16, torch.float32):
                for batch in (1, 8, 64):
                    read, write = measure(backend, dtype, batch)
                    print(f"{backend.caps.name:10} {dtype!s:15} {batch:5} {read:9.3f} {write:9.3f}")
