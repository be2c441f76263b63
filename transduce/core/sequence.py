"""Live hypotheses: a Sequence is one hypothesis' tokens and pages, a Group is one request's sequences.

Owned and changed by the scheduler alone.
"""

from collections import Counter
from dataclasses import dataclass, field

from transduce.core.blocks import BlockTable
from transduce.core.encoder_cache import Entry
from transduce.core.plan import Segment, StepResult
from transduce.core.request import Read, Request, Span
from transduce.core.search.base import Row, Search
from transduce.core.speculation import Drafter


@dataclass(slots=True, eq=False)
class Sequence:
    """One hypothesis. tokens: prompt and output. computed: tokens whose KV is in `table`. index: the search's name.

    keys: of its first full blocks, by content. kept: of how many the content is findable. shown: when it last lost its
    pages, the tokens that its rules had been shown.
    """

    seq_id: int
    index: int
    tokens: list[int]
    table: BlockTable
    computed: int = 0
    keys: list[bytes] = field(default_factory=list)
    kept: int = 0
    shown: int = 0

    @property
    def remaining(self) -> int:
        """Tokens whose KV is still to be computed."""
        return len(self.tokens) - self.computed


@dataclass(slots=True, eq=False)
class Group:
    """One request on its way through the engine.

    arrival: order of arrival. live: hypotheses still growing. entries: encoder inputs in use while admitted.
    rows: read results of this round, by seq_id, until every live hypothesis has one. served: last step it ran in.
    prefix: after a preemption, how many leading tokens the others take over from the first; 0 when that is done.
    told: tokens that the user has been told, by answer. scored: prompt tokens whose log-probabilities they have been.
    attended: prompt tokens whose attention they have been.
    drafter: guesses what follows, where that is done at all.
    """

    request: Request
    search: Search
    arrival: int
    live: list[Sequence]
    entries: list[Entry] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)
    served: int = 0
    prefix: int = 0
    started: bool = False
    told: Counter[int] = field(default_factory=Counter)
    scored: int = 0
    attended: int = 0
    drafter: Drafter | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """Who gives way to whom, the least last: by priority, then by arrival."""
        return self.request.priority, self.arrival

    @property
    def readable(self) -> bool:
        """Whether all encoder inputs are written by the time the planned step's decoder runs."""
        return all(entry.readable for entry in self.entries)

    @property
    def prefilling(self) -> bool:
        """Whether some hypothesis is more than one token from its end."""
        return any(sequence.remaining > 1 for sequence in self.live)

    @property
    def complete(self) -> bool:
        """Whether every live hypothesis has its row of this round."""
        return all(sequence.seq_id in self.rows for sequence in self.live)

    def generated(self, sequence: Sequence) -> int:
        """New tokens of a hypothesis."""
        return len(sequence.tokens) - len(self.request.prompt)

    def read(self, sequence: Sequence, ahead: int = 0) -> Read:
        """What to ask of a hypothesis' last row, or of one that would be so many tokens after it."""
        return self.search.read(len(sequence.tokens) - 1 + ahead, sequence.index, self.generated(sequence) + ahead)

    def collect(self, sequence: Sequence, result: StepResult) -> None:
        """Take what came of a hypothesis' read."""
        read, seq_id = self.read(sequence), sequence.seq_id
        choice = result.choices[seq_id, read.position]
        generated = self.generated(sequence)
        self.rows[seq_id] = Row(read.samples, generated, choice.candidates, choice.observed, choice.forbidden)

    def todo(self) -> list[tuple[Sequence, int]]:
        """Sequences that may run now, with the most tokens each may take.

        A lone hypothesis runs to its end. Several first come within one token of theirs, so that their last rows,
        which the search compares, are read in one round.
        """
        if self.prefix:
            first = self.live[0]
            return [(first, first.remaining - 1)] if first.remaining > 1 else []
        if len(self.live) > 1 and self.prefilling:
            return [(s, s.remaining - 1) for s in self.live if s.remaining > 1]
        return [(s, s.remaining) for s in self.live if s.seq_id not in self.rows]

    def segments(self, start: int, length: int) -> tuple[Segment, ...]:
        """What decoder positions [start, start + length) see of the encoder inputs, run by run."""
        return tuple(self._segment(length, span) for length, span in self.request.seen(start, length))

    def give_up_pages(self) -> None:
        """Release the self pages, and with them this round's rows; everything else stays."""
        for sequence in self.live:
            sequence.table.clear()
            if self.started:
                sequence.shown = max(sequence.shown, sequence.computed)
            sequence.computed = sequence.kept = 0
        self.rows.clear()
        self.prefix = self._common_prefix() if len(self.live) > 1 else 0

    def share_prefix(self) -> None:
        """Give the others the first hypothesis' pages of the common prefix, now that they are computed again."""
        first, prefix = self.live[0], self.prefix
        self.prefix = 0
        for sequence in self.live[1:]:
            sequence.table = first.table.fork()
            sequence.table.truncate(prefix)
            sequence.computed = prefix

    def _segment(self, length: int, span: Span | None) -> Segment:
        if span is None:
            return Segment(length, 0, (), 0)
        entry = self.entries[span.source]
        return Segment(length, span.rows, tuple(entry.table.blocks), entry.table_id)

    def _common_prefix(self) -> int:
        """Leading tokens all live hypotheses share, short of any one's last token."""
        shortest = min(len(s.tokens) for s in self.live) - 1
        first = self.live[0].tokens
        for position in range(shortest):
            if any(s.tokens[position] != first[position] for s in self.live):
                return position
        return shortest
