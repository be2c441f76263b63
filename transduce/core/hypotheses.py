"""Hypotheses: sequences come, fork and go, and the runner hears of it with the next plan.

Owns sequence ids and the news of them. Knows no budget, and not why a hypothesis ends.
"""

from collections.abc import Collection
from collections.abc import Sequence as Many

from transduce.core.blocks import BlockTable
from transduce.core.plan import StepPlan
from transduce.core.search.base import Continuation
from transduce.core.sequence import Group, Sequence
from transduce.core.speculation import Speculation


class Hypotheses:
    """news: the next plan, of which started, forks and dropped are filled here."""

    def __init__(self, speculation: Speculation | None) -> None:
        self._speculation = speculation
        self._ids = 0
        self.news = StepPlan()

    def new(self, index: int, tokens: list[int], table: BlockTable) -> Sequence:
        """A sequence of which the runner has not heard."""
        self._ids += 1
        return Sequence(self._ids, index, tokens, table)

    def start(self, group: Group) -> None:
        """A group's first sequence runs for the first time."""
        group.started = True
        first = group.live[0]
        self.news.started.append((first.seq_id, group.request.rules, tuple(first.tokens[: first.computed])))
        if self._speculation is not None:
            group.drafter = self._speculation.drafter(group.request)

    def go_on(self, group: Group, parents: Collection[int], survivors: Many[Continuation]) -> None:
        """Each parent forks into its survivors, of which the first moves into its place; without any it is dropped."""
        by_parent: dict[int, list[Continuation]] = {seq_id: [] for seq_id in parents}
        for continuation in survivors:
            by_parent[continuation.parent].append(continuation)
        for parent in list(group.live):
            if by_parent[parent.seq_id]:
                self._fork(group, parent, by_parent[parent.seq_id])
            else:
                self.drop(group, parent)

    def drop(self, group: Group, sequence: Sequence) -> None:
        """Forget a sequence and free its pages."""
        group.live.remove(sequence)
        group.rows.pop(sequence.seq_id, None)
        sequence.table.clear()
        if group.started:
            self.news.dropped.append(sequence.seq_id)

    def _fork(self, group: Group, parent: Sequence, survivors: Many[Continuation]) -> None:
        first, *others = survivors
        for continuation in others:
            child = self.new(continuation.index, [*parent.tokens, continuation.token], parent.table.fork())
            child.computed, child.keys, child.kept = parent.computed, list(parent.keys), parent.kept
            group.live.append(child)
            self.news.forks.append((parent.seq_id, child.seq_id))
        parent.index = first.index
        parent.tokens.append(first.token)
        if group.drafter is not None and self._speculation is not None:
            self._speculation.learn(group.drafter, first.token)
