"""Which encoder items each step computes: unwritten entries in order of admission, as the encode budget allows.

Owns the encode budget and how far each entry is planned and written. Knows no group and allocates nothing.
"""

from collections.abc import Sequence

from transduce.core.encoder_cache import Entry
from transduce.core.plan import EncodeJob
from transduce.core.request import EncoderInput

REST = 2
"""Steps without encode jobs between those for crowding owners: others' tokens wait for fewer of these."""


class Encoding:
    """Entries on their way from pending to ready; `budget` is in rows computed per step."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._left = 0
        self._rested = REST
        self._entries: list[Entry] = []
        self._planned: list[Entry] = []

    @property
    def outstanding(self) -> bool:
        """Whether jobs were taken and neither committed nor failed."""
        return bool(self._planned)

    def begin(self) -> None:
        """Start a step: go on with the entries there are, the longest waiting first."""
        self._left = self._budget
        for entry in self._entries:
            self._plan(entry)

    def admits(self, sources: Sequence[EncoderInput], crowds: bool = False) -> bool:
        """Whether each source's first item could still run in this step; in an untouched one anything can.

        crowds: whether their owner does, who has to let others' tokens go first.
        """
        if crowds and sources and self._rested < REST:
            return False
        return self._left == self._budget or all(source.items[0].cost <= self._left for source in sources)

    def add(self, entry: Entry) -> None:
        """Encode an entry from this step on, unless that is done or under way."""
        if not entry.ready and entry not in self._entries:
            self._entries.append(entry)
            self._plan(entry)

    def prune(self) -> None:
        """Forget the entries that lost their last user; their share of the step's budget is others' again."""
        lost = [entry for entry in self._entries if not entry.users]
        cost = sum(item.cost for entry in lost for item in entry.source.items[entry.written : entry.planned])
        self._left = min(self._budget, self._left + cost)
        self._entries = [entry for entry in self._entries if entry.users]

    def take(self) -> list[EncodeJob]:
        """This step's jobs."""
        self._planned = [entry for entry in self._entries if entry.planned > entry.written]
        self._rested = 0 if self._planned else self._rested + 1
        return [job for entry in self._planned for job in _jobs(entry)]

    def commit(self) -> int:
        """The jobs taken are done; returns the rows they wrote."""
        rows = 0
        for entry in self._planned:
            rows += sum(item.rows for item in entry.source.items[entry.written : entry.planned])
            entry.written = entry.planned
        self._planned = []
        self._entries = [entry for entry in self._entries if not entry.ready]
        return rows

    def fail(self) -> list[Entry]:
        """The jobs taken have failed; returns their entries."""
        failed, self._planned = self._planned, []
        return failed

    def _plan(self, entry: Entry) -> None:
        """Plan as many of the entry's next items as the budget holds; an oversized one only as the step's first."""
        for item in entry.source.items[entry.planned :]:
            if item.cost > self._left and self._left < self._budget:
                return
            entry.planned += 1
            self._left = max(0, self._left - item.cost)


def _jobs(entry: Entry) -> list[EncodeJob]:
    blocks, items = tuple(entry.table.blocks), entry.source.items
    starts = [sum(item.rows for item in items[:i]) for i in range(len(items))]
    return [EncodeJob(items[i], starts[i], blocks) for i in range(entry.written, entry.planned)]
