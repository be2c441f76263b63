"""Run: what one plan decides for one sequence, until its results are in.

Owns the step's tokens of that sequence, drafts included, and what is asked of their rows. Knows no other sequence.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from transduce.core.encoder_cache import EncoderCache
from transduce.core.output import TokenLogprobs, Weights
from transduce.core.plan import Choice, Chunk, StepResult
from transduce.core.request import Read
from transduce.core.sequence import Group, Sequence
from transduce.core.speculation import Speculation


@dataclass(slots=True, eq=False)
class Run:
    """`length` more tokens of a sequence and then `draft`, after the copies that make its pages its own.

    reading: whether the run reaches the sequence's end, where the next token is asked for.
    """

    group: Group
    sequence: Sequence
    length: int
    copies: list[tuple[int, int]]
    draft: tuple[int, ...] = ()
    reading: bool = field(init=False)

    def __post_init__(self) -> None:
        self.reading = self.length == self.sequence.remaining and not self.group.request.only_scored

    @property
    def wanted(self) -> int:
        """Tokens that may come after the one that is asked for."""
        return self.group.request.stopping.max_tokens - self.group.generated(self.sequence) - 1

    def chunk(self) -> Chunk:
        """The run as integers."""
        sequence, start = self.sequence, self.sequence.computed
        tokens = (*sequence.tokens[start : start + self.length], *self.draft)
        blocks, reads = tuple(sequence.table.blocks), (*self._scoring(), *self._reads())
        segments, attention = self.group.segments(start, len(tokens)), self.group.request.attention
        return Chunk(sequence.seq_id, start, tokens, blocks, segments, reads, attention)

    def scored(self, result: StepResult) -> list[TokenLogprobs]:
        """The prompt's log-probabilities that the run has found; to be asked before the sequence goes on."""
        return [_scored(result.targets[self.sequence.seq_id, read.position]) for read in self._scoring()]

    def weights(self, result: StepResult) -> list[Weights]:
        """The attention of the run's tokens, if it is asked for, but of those that it has been told of before."""
        if self.group.request.attention is None:
            return []
        return [result.weights[self.sequence.seq_id][:, max(0, self.group.attended - self.sequence.computed) :]]

    def _reads(self) -> Iterator[Read]:
        if self.reading:
            for ahead in range(len(self.draft) + 1):
                yield self.group.read(self.sequence, ahead)

    def _scoring(self) -> Iterator[Read]:
        request, end = self.group.request, self.sequence.computed + self.length
        if (scored := request.scored) is not None:
            for position, target in enumerate(request.targets, scored.start - 1):
                if scored.start - 1 + self.group.scored <= position < end:
                    yield Read(position, logprobs=scored.top, target=target, among=scored.among)


def speculate(speculation: Speculation, runs: Many[Run], most: int, cache: EncoderCache) -> None:
    """Draft at most so many tokens, on pages that nothing else needs in this step."""
    rows, reading = sum(run.length for run in runs), [run for run in runs if run.reading]
    offers = [(run, drafter, run.wanted) for run in reading if (drafter := run.group.drafter) is not None]
    drafts = speculation.draft([(drafter, wanted) for _, drafter, wanted in offers], len(reading), rows, most)
    for (run, _, _), draft in zip(offers, drafts, strict=True):
        table, end = run.sequence.table, len(run.sequence.tokens) + len(draft)
        if draft and cache.evict(table.missing(end)):
            table.grow(end)
            run.draft = tuple(draft)


def _scored(choice: Choice) -> TokenLogprobs:
    (target,) = choice.candidates
    assert target.logprob is not None
    assert choice.observed is not None
    return TokenLogprobs(target.token, target.logprob, choice.observed)
