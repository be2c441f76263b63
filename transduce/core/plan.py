"""What one step runs (StepPlan) and what came of it (StepResult): integers copied out of the scheduler's state.

A plan crosses to other processes as it is. Filled by the scheduler; the runner only reads it, and fills StepResult.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from transduce.core.output import Weights
from transduce.core.request import Attention, EncoderItem, Read, RuleSpec

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

    cross: segments that cover the chunk in order. reads: what is wanted, at positions inside the chunk, in order.
    attention: what is wanted of all its tokens.
    Tokens up to the first read's are the sequence's; later ones may be drafts, which the next chunk replaces.
    """

    seq_id: int
    start: int
    tokens: Tokens
    self_blocks: Blocks
    cross: tuple[Segment, ...]
    reads: tuple[Read, ...] = ()
    attention: Attention | None = None


@dataclass(slots=True)
class StepPlan:
    """One step, in the order the runner follows: started, forks, dropped, copies, encode, chunks.

    started: new sequences with the rules they obey, and the tokens whose KV they found. forks: (parent, child) share
    rule state so far. dropped: sequences to forget. copies: (source, destination) physical blocks; all sources are read
    before any write.
    """

    started: list[tuple[int, tuple[RuleSpec, ...], Tokens]] = field(default_factory=list)
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


@dataclass(frozen=True, slots=True)
class Choice:
    """What one read gave: a candidate per sample, the best ones for beams, or the target; none where none can follow.

    observed: the most likely (token, logprob), best first; None where none were asked for or no candidate is.
    forbidden: whether no candidate is because the request's rules leave none; else the model gave no number.
    """

    candidates: tuple[Candidate, ...]
    observed: tuple[tuple[int, float], ...] | None = None
    forbidden: bool = False


@dataclass(slots=True)
class StepResult:
    """choices: of each read, by sequence and position. targets: the same of reads that name a target.

    weights: of the tokens of each chunk that asks for attention, by sequence.
    """

    choices: dict[tuple[int, int], Choice] = field(default_factory=dict)
    targets: dict[tuple[int, int], Choice] = field(default_factory=dict)
    weights: dict[int, Weights] = field(default_factory=dict)
