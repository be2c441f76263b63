"""The scheduler: which requests run, what each step computes, and what becomes of its results.

Owns every Sequence and Group, with their block tables and encoder entries. Knows no tensor, no model and no text;
`plan` hands out integers and `commit` takes integers back. At most one plan is outstanding at a time.

    add ─▶ waiting ─admit─▶ running ─plan─▶ runner ─commit─▶ running … ─▶ finished
              ▲                │
              └── preempted ◀──┘  (keeps everything but its pages)
"""

from collections.abc import Iterator

from transduce.core import search
from transduce.core.blocks import BlockPool, BlockTable
from transduce.core.capacity import Budgets, refuse_if_too_large
from transduce.core.counters import Counters
from transduce.core.encoder_cache import EncoderCache
from transduce.core.encoding import Encoding
from transduce.core.hypotheses import Hypotheses
from transduce.core.output import Delta, Output, merged
from transduce.core.plan import StepPlan, StepResult
from transduce.core.prefix_cache import PrefixCache
from transduce.core.queue import WaitingQueue
from transduce.core.request import Request
from transduce.core.run import Run, speculate
from transduce.core.search.base import dead_end
from transduce.core.sequence import Group, Sequence
from transduce.core.speculation import Speculation
from transduce.errors import EngineError


class Scheduler:
    """Continuous batching over one pool of pages. admitted: requests that the last plan let in for the first time."""

    def __init__(self, budgets: Budgets, pool: BlockPool, speculation: Speculation | None = None) -> None:
        self._budgets = budgets
        self._pool = pool
        self.speculation = speculation
        self.cache = EncoderCache(pool, budgets.block_size, budgets.cross_slabs)
        self.prefixes = PrefixCache(pool, budgets.block_size, budgets.self_slabs)
        self.counters = Counters()
        self.admitted: list[str] = []
        self._groups: dict[str, Group] = {}
        self._leases: dict[str, list[bytes]] = {}
        self._waiting = WaitingQueue()
        self._running: list[Group] = []
        self._encoding = Encoding(budgets.max_encode_tokens)
        self._hypotheses = Hypotheses(speculation)
        self._runs: list[Run] = []
        self._arrivals = 0
        self._step = 0
        self._tokens_left = 0

    @property
    def unfinished(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self._groups)

    @property
    def running(self) -> int:
        """Requests that hold pages."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that do not."""
        return len(self._waiting)

    @property
    def self_usage(self) -> float:
        """Share of the pool, of 1, that hypotheses' own pages take."""
        return (self._pool.capacity - self._pool.free - self.cache.blocks) / self._pool.capacity

    # Arrival and departure

    def add(self, request: Request) -> None:
        """Queue a request. Raises CapacityError, with the numbers, when it could never run."""
        assert request.request_id not in self._groups, f"request id {request.request_id!r} is in use"
        refuse_if_too_large(self._budgets, self._pool.capacity, request)
        self._arrivals += 1
        table = BlockTable(self._pool, self._budgets.block_size, self._budgets.self_slabs)
        first = self._hypotheses.new(0, list(request.computed), table)
        group = Group(request, search.make(request), self._arrivals, [first])
        self._groups[request.request_id] = group
        self._waiting.add(group)
        self.counters.prompt_tokens += len(request.prompt)

    def finish(self, request_id: str, index: int, at: int) -> None:
        """End answer `index` after `at` new tokens (a stop string matched); later ones are not counted.

        Hypotheses that may still become another answer go on.
        """
        group = self._groups.get(request_id)
        if group is None:
            return
        idle = [s for s in group.live if group.search.serves(s.index, index)]
        if idle:
            self.counters.generated_tokens -= group.told[index] - at
        for sequence in idle:
            self._hypotheses.drop(group, sequence)
        if not group.live:
            self._end(group)

    def abort(self, request_id: str) -> None:
        """Forget a request and free all it holds, its leases included; unknown ids are ignored."""
        group = self._groups.get(request_id)
        if group is not None:
            for sequence in list(group.live):
                self._hypotheses.drop(group, sequence)
            self._end(group)
        for key in self._leases.pop(request_id, ()):
            self.cache.unhold(key)

    # Planning

    def plan(self) -> StepPlan:
        """What the next step computes; empty when nothing can run."""
        outstanding = self._runs or self._encoding.outstanding
        assert not outstanding, "the last plan was neither committed nor failed"
        self._step += 1
        self.admitted = []
        self._tokens_left = self._budgets.max_num_batched_tokens
        self._encoding.begin()
        # Least recently served first, so that a group the budget left out comes next; one-token groups before prefills.
        for group in sorted(self._running, key=lambda g: (g.served, g.prefilling, g.arrival)):
            self._plan_group(group)
        self._admit()
        if self.speculation is not None:
            speculate(self.speculation, self._runs, self._tokens_left, self.cache)
        return self._take_plan()

    def _plan_group(self, group: Group) -> None:
        if group not in self._running or not group.readable:
            return
        if group.prefix and group.live[0].computed >= group.prefix:
            group.share_prefix()
        for sequence, most in group.todo():
            length = min(most, self._tokens_left)
            if length == 0 or not self._plan_run(group, sequence, length):
                return
            group.served = self._step
            self._tokens_left -= length

    def _plan_run(self, group: Group, sequence: Sequence, length: int) -> bool:
        """Give the sequence pages of its own for `length` more tokens; False if that took the group's own pages."""
        start, end = sequence.computed, sequence.computed + length
        while not self.cache.evict(sequence.table.needed(start, end)):
            if self._preempt_last() is group:
                return False
        self._runs.append(Run(group, sequence, length, sequence.table.make_writable(start, end)))
        return True

    def _take_plan(self) -> StepPlan:
        """Fix the decisions as integers, now that no later one can preempt an earlier one."""
        plan, self._hypotheses.news = self._hypotheses.news, StepPlan()
        plan.encode = self._encoding.take()
        plan.copies = [copy for run in self._runs for copy in run.copies]
        plan.chunks = [run.chunk() for run in self._runs]
        return plan

    # Admission and preemption

    def _admit(self) -> None:
        while (group := self._waiting.first()) is not None and self._has_room(group):
            self._waiting.pop_first()
            self._running.append(group)
            group.entries = [self.cache.acquire(source) for source in group.request.inputs]
            for entry in group.entries:
                self._encoding.add(entry)
            if not group.started:
                self._hypotheses.start(group)
                self.prefixes.count(group)
                self.admitted.append(group.request.request_id)
            self._plan_group(group)

    def _has_room(self, group: Group) -> bool:
        """Whether the step and the pool take the group now; running ones of less urgent priority give way to it."""
        missing, crowds = self.cache.missing(group.request.inputs), self._waiting.crowds(group)
        if self._tokens_left == 0 or not self._encoding.admits(missing, crowds):
            return False
        while not self._fits(group):
            if all(g.request.priority <= group.request.priority for g in self._running):
                return False
            self._preempt_last()
        return True

    def _fits(self, group: Group) -> bool:
        """Whether there are places and pages for the group; makes the room it needs of idle ones, all or nothing."""
        request, budgets = group.request, self._budgets
        if sum(g.request.width for g in self._running) + request.width > budgets.max_num_seqs:
            return False
        self.prefixes.reuse(group)
        needed = sum(budgets.cross_blocks(s.rows) for s in self.cache.missing(request.inputs))
        needed += sum(s.table.missing(len(s.tokens)) for s in group.live)
        spare = sum(len(g.live) for g in self._running) * budgets.self_slabs
        keep = frozenset(s.key for s in request.inputs)
        if self._pool.free + self.cache.evictable(keep) < needed + spare:
            group.give_up_pages()
            return False
        self.cache.evict(needed, keep)
        group.live[0].table.grow(len(group.live[0].tokens))
        return True

    def _preempt_last(self) -> Group:
        group = max(self._running, key=lambda g: g.rank)
        self.counters.preemptions += 1
        self._leave(group)
        self._runs = [run for run in self._runs if run.group is not group]
        group.give_up_pages()
        self._waiting.put_back(group)
        return group

    # Results

    def commit(self, result: StepResult) -> list[Output]:
        """Take a step's results: advance every group whose hypotheses all have their row; what changed, per request."""
        runs, self._runs = self._runs, []
        self.counters.encoded_rows += self._encoding.commit()
        outputs = [output for run in runs if run.sequence in run.group.live for output in self._take(run, result)]
        outputs += self._advance_rounds()
        outputs += [output for run in runs if run.draft for output in self._accept(run, result)]
        return merged(outputs)

    def _take(self, run: Run, result: StepResult) -> Iterator[Output]:
        """A sequence goes on by what it was given of its own; what that says of the prompt."""
        group, scored, weights, reading = run.group, run.scored(result), run.weights(result), run.reading
        run.sequence.computed += run.length
        self.prefixes.keep(group.request, run.sequence)
        if scored or weights:
            group.scored += len(scored)
            group.attended += sum(part.shape[1] for part in weights)
            yield Output(group.request.request_id, scored=scored, weights=weights)
        if reading:
            group.collect(run.sequence, result)
        elif group.request.only_scored and not run.sequence.remaining:
            self._hypotheses.drop(group, run.sequence)
            self._end(group)
            yield Output(group.request.request_id, [Delta(0, finish_reason="length")], finished=True)

    def _accept(self, run: Run, result: StepResult) -> Iterator[Output]:
        """Advance by the drafts that were right; the pages of the others are written anew."""
        group, sequence, start = run.group, run.sequence, run.sequence.computed
        for token in run.draft:
            if sequence not in group.live or sequence.tokens[-1] != token:
                break
            sequence.computed += 1
            self.prefixes.keep(group.request, sequence)
            group.collect(sequence, result)
            yield self._advance(group)
        sequence.table.truncate(len(sequence.tokens))
        self.counters.drafts += 1
        self.counters.drafted += len(run.draft)
        self.counters.accepted += sequence.computed - start

    def fail(self, error: str) -> list[Output]:
        """The outstanding plan's step failed: its requests end with `error`, and with them go its encoder entries."""
        ran, self._runs = {run.group for run in self._runs}, []
        entries = self._encoding.fail()
        lost = [g for g in self._running if g in ran or any(entry in entries for entry in g.entries)]
        for group in lost:
            self.abort(group.request.request_id)
        ended = [Output(group.request.request_id, finished=True, error=EngineError(error)) for group in lost]
        return ended + self._advance_rounds()

    def _advance_rounds(self) -> list[Output]:
        """Advance the groups whose round is complete: by this step, or because `finish` took the last one missing."""
        return [self._advance(group) for group in list(self._running) if group.complete]

    def _advance(self, group: Group) -> Output:
        rows, group.rows = group.rows, {}
        done = group.search.advance(rows)
        output = Output(group.request.request_id, done.deltas)
        for delta in done.deltas:
            group.told[delta.index] += len(delta.tokens)
            self.counters.generated_tokens += len(delta.tokens)
            if delta.finish_reason == "error":
                output.error = dead_end(group.request.rules, rows.values())
        self._hypotheses.go_on(group, rows, done.survivors)
        if not group.live:
            output.finished = True
            self._end(group)
        return output

    def _end(self, group: Group) -> None:
        del self._groups[group.request.request_id]
        self.counters.finished += 1
        if group.request.leases:
            self._leases[group.request.request_id] = [s.key for s in group.request.inputs if self.cache.hold(s.key)]
        if group in self._running:
            self._leave(group)
        else:
            self._waiting.remove(group)

    def _leave(self, group: Group) -> None:
        self._running.remove(group)
        self._waiting.leave(group)
        while group.entries:
            self.cache.release(group.entries.pop())
        self._encoding.prune()
