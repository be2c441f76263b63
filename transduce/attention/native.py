"""Attention by this package's own CPU kernels, over pages in the layout that their dot products read.

Owns the plan and the choice of library. The layout and the arithmetic are `kernels.paged`'s. A row's bits depend on its
query and its keys alone, in page order: not on its chunk, nor on its neighbours.
"""

from collections.abc import Sequence
from ctypes import CDLL

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.attention.base import Attend, Caps, Meta, Segments
from transduce.attention.pages import Pages
from transduce.errors import ConfigError
from transduce.kernels import paged
from transduce.kernels.load import library
from transduce.kernels.varlen import varlen


class Native(Pages):
    """Paged reads by C++ kernels: those of this CPU's best instruction set, or of the library given."""

    caps = Caps(
        name="native",
        priority=20,
        devices=frozenset({"cpu"}),
        dtypes=frozenset({torch.float32, torch.bfloat16}),
        pages=frozenset({torch.int8}),
        head_dims=range(2, 257, 2),
        bias=True,
        softcap=True,
        window=True,
        row_exact=True,
        graphs=True,
    )

    def __init__(self, kernels: CDLL | None = None) -> None:
        self._given = kernels

    def missing(self) -> str | None:
        if self._given or library():
            return None
        return "there are no CPU kernels: TRANSDUCE_KERNELS=off, or no C++ compiler when Transduce was installed"

    @property
    def _kernels(self) -> CDLL:
        found = self._given or library()
        assert found is not None, "a backend that misses something was selected"
        return found

    def unfit(self, head_dim: int, block_size: int, pages: torch.dtype) -> str | None:
        word = paged.WORD.get(pages, 1)
        if block_size % word:
            return f"pages of {pages} need a block_size that is a multiple of {word}, not {block_size}: change it"
        if head_dim % word:
            return f"pages of {pages} need heads of a multiple of {word}, not {head_dim}: leave kv_cache_dtype out"
        return super().unfit(head_dim, block_size, pages)

    def block_shape(self, kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> tuple[int, ...]:
        if (fault := self.unfit(head_dim, block_size, dtype)) is not None:
            raise ConfigError(f"attention backend 'native': {fault}")
        return paged.block_shape(kv_heads, head_dim, block_size, dtype)

    def plan(self, segments: Segments, out: Meta | None) -> Meta:
        """Meta is (runs [4, segments]; positions [tokens]; blocks [slabs, segments, max_blocks]), see paged.Reading.

        Neighbours that read the same keys make one run, so that they share each load of keys and values.
        """
        count, width, slabs = segments.blocks.shape
        if out is None:
            shapes = ((4, count), (int(segments.q_len.sum()),), (slabs, count, width))
            out = tuple(torch.empty(shape, dtype=torch.int32) for shape in shapes)
        runs, positions, blocks = (tensor.numpy() for tensor in out)
        assert blocks.shape == (slabs, count, width), f"{segments.blocks.shape} does not fit {blocks.shape}"
        blocks[...] = segments.blocks.transpose(2, 0, 1)
        end = segments.q_len.cumsum()
        first = end - segments.q_len
        positions[...] = np.repeat(segments.q_pos - first, segments.q_len)
        positions += np.arange(len(positions), dtype=np.int32)
        _find_runs(segments, first, runs)
        return out

    def write(self, cache: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
        paged.write(self._kernels, cache, k, v, slots)

    def copy(self, caches: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        paged.copy(self._kernels, caches, pairs)

    def gather(self, cache: Tensor, blocks: Sequence[int], length: int) -> tuple[Tensor, Tensor]:
        k, v = paged.rows(cache.index_select(0, torch.tensor(blocks, dtype=torch.int64)))
        return k.flatten(0, 1)[:length], v.flatten(0, 1)[:length]

    def read(
        self, q: Tensor, cache: Tensor, meta: Meta, slab: int, attend: Attend, lse: Tensor | None = None
    ) -> Tensor:
        runs, positions, blocks = meta
        reading = paged.Reading(runs, positions, blocks[slab])
        bias = None if attend.bias is None else attend.bias.float().contiguous()
        scoring = paged.Scoring(attend.scale, attend.causal, bias, attend.softcap or 0.0, attend.window or 0)
        return paged.read(self._kernels, q, cache, reading, scoring, lse)

    def varlen(self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], attend: Attend) -> Tensor:
        scoring = (attend.scale, attend.causal, attend.bias, attend.softcap, attend.window)
        return varlen(self._kernels, q, k, v, lengths, *scoring)


def _find_runs(segments: Segments, first: npt.NDArray[np.int32], runs: npt.NDArray[np.int32]) -> None:
    """Neighbours of one table and kv_len as one run each: runs [4, segments] in place, zeros after the last."""
    kv_len, table = segments.kv_len, segments.table
    starts = np.ones(len(kv_len), np.bool_)
    starts[1:] = (table[1:] != table[:-1]) | (kv_len[1:] != kv_len[:-1])
    (leaders,) = starts.nonzero()
    count = len(leaders)
    runs[0, :count] = first[leaders]
    runs[1, :count] = np.add.reduceat(segments.q_len, leaders)
    runs[2, :count] = kv_len[leaders]
    runs[3, :count] = leaders
    runs[:, count:] = 0
