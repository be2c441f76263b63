"""What one step runs (StepPlan) and what came of it (StepResult): integers copied out of the scheduler's state.

A plan crosses to other processes as it is. Filled by the scheduler; the runner only reads it, and fills StepResult.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from transduce.core.request import EncoderItem, Read, RuleSpec

Tokens = tuple[int, ...]
Blocks = tuple[int, ...]
"""Physical blocks; logical block i of a group with s slabs is entries [i * s, (i + 1) * s)."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodeJob:
    """Encode one item and write its cross-attention KV to rows [start, start + item.rows) of a cross table."""

    item: EncoderItem
    start: int
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class Segment:
    """`length` consecutive tokens of a chunk that see the first `kv_len` rows of one cross table (0: nothing)."""

    length: int
    kv_len: int
    blocks: Blocks
    table: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """`tokens` of sequence `seq_id` at decoder positions [start, start + len(tokens)).

    cross: segments that cover the chunk in order. reads: what is wanted, at positions inside the chunk.
    """

    seq_id: int
    start: int
    tokens: Tokens
    self_blocks: Blocks
    cross: tuple[Segment, ...]
    reads: tuple[Read, ...] = ()


@dataclass(slots=True)
class StepPlan:
    """One step, in the order the runner follows: started, forks, dropped, copies, encode, chunks.

    started: new sequences with the rules they obey. forks: (parent, child) share rule state so far.
    dropped: sequences to forget. copies: (source, destination) physical blocks; all sources are read before any write.
    """

    started: list[tuple[int, tuple[RuleSpec, ...]]] = field(default_factory=list)
    forks: list[tuple[int, int]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    encode: list[EncodeJob] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether the runner has nothing to do, not even to forget a sequence."""
        return not (self.encode or self.chunks or self.dropped)


class Candidate(NamedTuple):
    """A token the runner proposes after one read; `logprob` only if the read asked for log-probabilities.

    noise: of a token drawn for beams: the greater logprob + noise, the earlier it is drawn.
    """

    token: int
    logprob: float | None
    noise: float = 0.0


@dataclass(slots=True)
class StepResult:
    """candidates: per sequence with a read, one per sample, or the best for beams.

    observed: per read, the most likely (token, logprob).
    """

    candidates: dict[int, tuple[Candidate, ...]] = field(default_factory=dict)
    observed: dict[tuple[int, Read], tuple[tuple[int, float], ...]] = field(default_factory=dict)
