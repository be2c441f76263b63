"""The contract of an attention backend: a paged KV cache in the backend's own layout, and the kernels that use it.

Owns Attend, Segments, Caps and AttentionBackend. Knows no model, no scheduler; block tables are data.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Meta = tuple[Tensor, ...]
"""A backend's per-step tensors for one KV group; the same count and dtypes for every step."""


@dataclass(frozen=True, slots=True, eq=False)
class Attend:
    """How queries attend to keys.

    scale: multiplies query · key. causal: a query at position p sees keys 0..p.
    bias: [heads, 2R+1], added as bias[head, clamp(k_pos - q_pos, -R, R) + R]; positions are absolute.
    softcap: scores become softcap * tanh(scores / softcap). window: only keys with q_pos - k_pos < window.
    """

    scale: float
    causal: bool = False
    bias: Tensor | None = None
    softcap: float | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Runs of consecutive query rows, each reading one block table; host integers. Their q_len sum to the query rows.

    q_len, kv_len, table: [segments]; q_pos: [segments], absolute position of each segment's first query.
    With `causal`, key position p is visible to queries at positions >= p, and always p < kv_len.
    blocks: [segments, max_blocks, slabs] physical block ids; entries past kv_len are 0.
    table: equal for segments that read the same block table.
    """

    q_len: npt.NDArray[np.int32]
    q_pos: npt.NDArray[np.int32]
    kv_len: npt.NDArray[np.int32]
    blocks: npt.NDArray[np.int32]
    table: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Caps:
    """What a backend can do.

    dtypes: of queries, keys and values, and of pages too. pages: what else pages may be: a cache of integers is one of
    rounded numbers. row_exact: a query's result does not depend on how its sequence was cut into chunks.
    """

    name: str
    priority: int
    devices: frozenset[str]
    dtypes: frozenset[torch.dtype]
    head_dims: range
    bias: bool
    softcap: bool
    window: bool
    row_exact: bool
    graphs: bool
    pages: frozenset[torch.dtype] = frozenset()


class AttentionBackend(ABC):
    """Paged reads and writes for decoders, packed attention for encoders. A row never depends on other rows."""

    caps: Caps

    def missing(self) -> str | None:
        """What this machine lacks to run the backend, and the way out; None if nothing."""
        return None

    def unfit(self, head_dim: int, block_size: int, pages: torch.dtype) -> str | None:
        """Why a cache cannot be of this dtype, and the way out; None if it can."""
        if pages in self.caps.dtypes | self.caps.pages:
            return None
        return f"attention backend {self.caps.name!r} has no pages of {pages}: leave kv_cache_dtype out"

    @abstractmethod
    def block_bytes(self, depth: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> int:
        """Bytes of one physical block, `depth` layers deep."""

    @abstractmethod
    def cache(
        self, blocks: int, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """A zeroed cache of `blocks` blocks for one depth index, in this backend's layout."""

    @abstractmethod
    def plan(self, segments: Segments, out: Meta | None) -> Meta:
        """This step's tensors for `read`; once per step and KV group. Filled in place, without allocating, if `out`."""

    @abstractmethod
    def write(self, cache: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Store k, v [tokens, kv_heads, head_dim] at slots [tokens] (block * block_size + offset), int64."""

    @abstractmethod
    def copy(self, caches: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        """In each cache, all of one shape, copy blocks (source, destination): all sources are read before any write."""

    @abstractmethod
    def gather(self, cache: Tensor, blocks: Sequence[int], length: int) -> tuple[Tensor, Tensor]:
        """k, v [length, kv_heads, head_dim] as written, from one table's physical blocks of one slab."""

    @abstractmethod
    def read(
        self, q: Tensor, cache: Tensor, meta: Meta, slab: int, attend: Attend, lse: Tensor | None = None
    ) -> Tensor:
        """Attention of q [tokens, heads, head_dim] over pages: [tokens, heads, head_dim].

        Rows whose segment has kv_len 0 are exact zeros. lse [tokens, heads] is filled if given (-inf for those rows).
        """

    @abstractmethod
    def varlen(self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], attend: Attend) -> Tensor:
        """Packed self-attention: q [rows, heads, head_dim], k and v [rows, kv_heads, head_dim], one run per length."""
