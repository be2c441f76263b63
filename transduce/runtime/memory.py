"""How many blocks the KV pool gets: what the user gave, else a share of what is free after a profile run.

Owns the arithmetic and its log line. Knows no block table and no kernel.
"""

import logging
from dataclasses import dataclass

from transduce.config import GIB, KV_SPACE, EngineConfig
from transduce.core.capacity import Budgets
from transduce.device.base import Memory
from transduce.errors import ConfigError
from transduce.models.base import Spec

log = logging.getLogger(__name__)

SHARE = 0.5
"""Of the memory that is free beside the weights and a step's activations, the KV pool takes at most this much."""

ASSUMED_LENGTH = 1024
"""Tokens of an input or output whose length the model does not limit, when the pool's useful size is reckoned."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Physical blocks of a request at its longest."""

    self_blocks: int
    cross_blocks: int

    @property
    def blocks(self) -> int:
        """Both groups."""
        return self.self_blocks + self.cross_blocks


def demand(spec: Spec, config: EngineConfig, budgets: Budgets) -> Demand:
    """What one request takes at the model's longest input and output."""
    rows = spec.fixed_rows or spec.max_source or config.max_model_len or ASSUMED_LENGTH
    tokens = config.max_model_len or ASSUMED_LENGTH
    return Demand(budgets.self_blocks(tokens), budgets.cross_blocks(rows))


def pool_blocks(config: EngineConfig, each: Demand, block_bytes: int, memory: Memory, activations: int) -> int:
    """Physical blocks for the pool, block 0 included.

    Sized by the user, or to hold `max_num_seqs` of the longest requests and as many encoder inputs again (what the
    encoder cache keeps), if half of the free memory allows. Raises ConfigError when not even one request fits.
    """
    if config.kv_cache_bytes is not None:
        _refuse_beyond(memory.total, config.kv_cache_bytes)
        blocks, source = config.kv_cache_bytes // block_bytes, "as configured"
    else:
        useful = config.max_num_seqs * (each.blocks + each.cross_blocks) + 1
        room = int((memory.free - activations) * SHARE) // block_bytes
        blocks, source = min(useful, room), f"of {memory.free / GIB:.1f} GiB free"
    if blocks < 3:
        least = (each.blocks + 1) * block_bytes
        raise ConfigError(
            f"the KV cache would hold {max(0, blocks)} blocks of {block_bytes} bytes ({source}), and the longest "
            f"request takes {each.blocks + 1}: set kv_cache_bytes to {least} or more, or {KV_SPACE} in GiB"
        )
    log.info("KV cache: %.2f GiB %s", blocks * block_bytes / GIB, source)
    return blocks


def _refuse_beyond(total: int, wanted: int) -> None:
    if wanted > total:
        raise ConfigError(
            f"a KV cache of {wanted / GIB:.1f} GiB on a machine of {total / GIB:.1f} GiB: "
            f"lower kv_cache_bytes or {KV_SPACE}"
        )


@dataclass(frozen=True, slots=True)
class Holds:
    """What so many usable blocks hold: decoder tokens or encoder rows alone, and the longest requests at once."""

    blocks: int
    tokens: int
    rows: int
    at_once: float

    def __str__(self) -> str:
        return (
            f"{self.blocks} blocks hold {self.tokens} tokens of self KV, or {self.rows} rows of cross KV; "
            f"at the longest, {self.at_once:.1f} requests run at once"
        )


def holds(blocks: int, each: Demand, budgets: Budgets) -> Holds:
    """What a pool of `blocks` holds, block 0 included."""
    usable = blocks - 1
    return Holds(
        usable,
        usable // budgets.self_slabs * budgets.block_size,
        usable // budgets.cross_slabs * budgets.block_size,
        usable / each.blocks,
    )
