"""The plainest page layout, [blocks, block_size, 2 (k, v), kv_heads, head_dim], for backends that use it.

Owns how pages are made, written, copied and gathered. Does not know how they are read.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.attention.base import AttentionBackend, Meta


class RowPages(AttentionBackend):
    """A token's k and v stand side by side, so one gather of blocks fetches both."""

    def block_bytes(self, depth: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> int:
        return depth * block_size * 2 * kv_heads * head_dim * dtype.itemsize

    def cache(
        self, blocks: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        shape = (blocks, block_size, 2, kv_heads, head_dim)
        if device.type != "cpu":
            return torch.zeros(shape, dtype=dtype, device=device)
        # The system's zero pages: memory is taken when a block is first written, where torch.zeros writes it all.
        size = math.prod(shape) * dtype.itemsize
        return torch.from_numpy(np.zeros(size, np.uint8)).view(dtype).view(shape)

    def write(self, cache: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
        rows = cache.flatten(0, 1)
        rows[:, 0].index_copy_(0, slots, k.to(cache.dtype))
        rows[:, 1].index_copy_(0, slots, v.to(cache.dtype))

    def copy(self, cache: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
        ids = torch.tensor(pairs, dtype=torch.int64, device=cache.device).view(-1, 2)
        source, destination = ids.unbind(1)
        cache.index_copy_(0, destination, cache.index_select(0, source))

    def gather(self, cache: Tensor, blocks: Sequence[int], length: int) -> tuple[Tensor, Tensor]:
        ids = torch.tensor(blocks, dtype=torch.int64, device=cache.device)
        k, v = cache.index_select(0, ids).flatten(0, 1)[:length].unbind(1)
        return k, v


def store(arrays: Sequence[npt.NDArray[np.int64]], out: Meta | None) -> Meta:
    """The arrays as tensors, copied into `out` if it is given."""
    tensors = tuple(torch.from_numpy(array) for array in arrays)
    if out is None:
        return tensors
    for target, tensor in zip(out, tensors, strict=True):
        assert target.shape == tensor.shape, f"{tensor.shape} does not fit {target.shape}"
        target.copy_(tensor)
    return out
