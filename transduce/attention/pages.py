"""Caches whose first dimension counts blocks, and the plainest layout of a block's pages.

Owns how pages are made, copied, and, in the plain layout, written and gathered. Does not know how they are read.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.attention.base import AttentionBackend, Meta

CACHE_LINE = 64


class Pages(AttentionBackend):
    """A block is a slice of the cache, shaped as `block_shape` says."""

    @abstractmethod
    def block_shape(self, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> tuple[int, ...]:
        """Shape of one block, one layer deep. Raises ConfigError for a block size that the layout cannot hold."""

    def block_bytes(self, depth: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> int:
        return depth * math.prod(self.block_shape(kv_heads, head_dim, block_size, dtype)) * dtype.itemsize

    def cache(
        self, blocks: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        shape = (blocks, *self.block_shape(kv_heads, head_dim, block_size, dtype))
        if device.type != "cpu":
            return torch.zeros(shape, dtype=dtype, device=device)
        return _zeros(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)

    def copy(self, caches: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        for cache in caches:
            ids = torch.tensor(pairs, dtype=torch.int64, device=cache.device).view(-1, 2)
            source, destination = ids.unbind(1)
            cache.index_copy_(0, destination, cache.index_select(0, source))


class RowPages(Pages):
    """[block_size, 2 (k, v), kv_heads, head_dim]: a token's k and v stand side by side, so one gather fetches both."""

    def block_shape(self, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> tuple[int, ...]:
        return (block_size, 2, kv_heads, head_dim)

    def write(self, cache: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
        rows = cache.flatten(0, 1)
        rows[:, 0].index_copy_(0, slots, k.to(cache.dtype))
        rows[:, 1].index_copy_(0, slots, v.to(cache.dtype))

    def gather(self, cache: Tensor, blocks: Sequence[int], length: int) -> tuple[Tensor, Tensor]:
        ids = torch.tensor(blocks, dtype=torch.int64, device=cache.device)
        k, v = cache.index_select(0, ids).flatten(0, 1)[:length].unbind(1)
        return k, v


def _zeros(size: int) -> Tensor:
    """The system's zero pages: memory is taken when a block is first written, where torch.zeros writes it all."""
    buffer = np.zeros(size + CACHE_LINE, np.uint8)
    start = -buffer.ctypes.data % CACHE_LINE
    return torch.from_numpy(buffer[start : start + size])


def store(arrays: Sequence[npt.NDArray[np.int64]], out: Meta | None) -> Meta:
    """The arrays as tensors, copied into `out` if it is given."""
    tensors = tuple(torch.from_numpy(array) for array in arrays)
    if out is None:
        return tensors
    for target, tensor in zip(out, tensors, strict=True):
        assert target.shape == tensor.shape, f"{tensor.shape} does not fit {target.shape}"
        target.copy_(tensor)
    return out
