"""A scheduler driven through a FakeRunner, with every promise checked at every step.

The Simulation owns the loop and the checks; what happens when is the test's.
"""

from collections import Counter
from collections.abc import Callable
from itertools import groupby

import numpy as np

from tests.core.beams_alone import beams_alone
from tests.core.fake_runner import FakeRunner, Hypothesis, alone, attended, scores
from transduce.core.blocks import BlockPool
from transduce.core.capacity import Budgets
from transduce.core.encoder_cache import Entry
from transduce.core.output import Output, TokenLogprobs, Weights
from transduce.core.plan import StepPlan
from transduce.core.request import EncoderInput, Request
from transduce.core.scheduler import Scheduler
from transduce.core.sequence import Group
from transduce.core.speculation import Speculation


class Simulation:
    """Requests in, outputs out. `cut` holds hypotheses ended by `finish`, `lost` the requests aborted or failed."""

    def __init__(self, budgets: Budgets, num_blocks: int, speculation: Speculation | None = None) -> None:
        self.budgets = budgets
        self.pool = BlockPool(num_blocks)
        self.scheduler = Scheduler(budgets, self.pool, speculation)
        self.runner = FakeRunner(budgets, self.pool)
        self.requests: dict[str, Request] = {}
        self.outputs: dict[tuple[str, int], Hypothesis] = {}
        self.scored: dict[str, list[TokenLogprobs]] = {}
        self.weights: dict[str, list[Weights]] = {}
        self.cut: dict[tuple[str, int], int] = {}
        self.lost: set[str] = set()
        self.steps = 0
        self._billed = 0
        self._positions: dict[int, tuple[bytes, int]] = {}
        self._encoded: set[tuple[int, int]] = set()
        self._unserved: Counter[int] = Counter()

    # What a test does

    def add(self, *requests: Request) -> None:
        """Hand requests in."""
        for request in requests:
            self.scheduler.add(request)
            self.requests[request.request_id] = request
            self.scored[request.request_id] = []
            self.weights[request.request_id] = []
            self.outputs |= {(request.request_id, index): Hypothesis() for index in range(request.answers)}
            for source in request.inputs:
                self._positions |= {id(item): (source.key, at) for at, item in enumerate(source.items)}

    def abort(self, request_id: str) -> None:
        """Abort a request, finished or not."""
        self.lost.add(request_id)
        self.scheduler.abort(request_id)

    def finish(self, request_id: str, index: int, at: int) -> None:
        """A stop string matched."""
        output = self.outputs[request_id, index]
        assert output.reason is None
        assert at <= len(output.tokens)
        beams = self.requests[request_id].beams
        if beams is None or beams.answers == 1:
            self._billed -= len(output.tokens) - at
            self.cut[request_id, index] = at
        self.scheduler.finish(request_id, index, at)

    def step(self, fails: bool = False, between: Callable[[], None] = lambda: None) -> StepPlan:
        """One step. With `fails` the runner fails; `between` happens while the plan is outstanding."""
        self.steps += 1
        plan = self._plan()
        if plan.empty:
            assert not self.scheduler.unfinished, "nothing can run, but requests wait"
            return plan
        result = self.runner.run(plan, fails)
        between()
        for output in self.scheduler.fail("it broke") if fails else self.scheduler.commit(result):
            self._record(output)
        self._check_blocks()
        return plan

    def drain(self, most: int = 10_000) -> None:
        """Step until nothing is left, then check every output and that nothing leaked."""
        while self.scheduler.unfinished:
            assert self.steps < most, "starved"
            self.step()
        self.check()

    def check(self) -> None:
        """Nothing is left; every output is what the request alone would give; every page comes back."""
        self.step()
        assert not self.runner.states, "rule states leaked"
        for request in self.requests.values():
            for index, expected in enumerate(alone(request) if request.beams is None else beams_alone(request)):
                self._check_output(request.request_id, index, expected)
            self._check_scored(request)
        assert self.scheduler.counters.generated_tokens == self._billed
        assert self.scheduler.counters.prompt_tokens == sum(len(r.prompt) for r in self.requests.values())
        assert self.scheduler.counters.finished == len(self.requests)
        assert self.scheduler.cache.evict(self.pool.capacity), "blocks leaked"
        assert len(self.scheduler.cache) == 0

    # What is checked

    def _check_output(self, request_id: str, index: int, expected: Hypothesis) -> None:
        output, at = self.outputs[request_id, index], self.cut.get((request_id, index))
        if request_id in self.lost or at is not None:
            most = len(output.tokens) if at is None else at
            assert output.tokens[:most] == expected.tokens[:most]
        else:
            assert output == expected, f"{request_id}[{index}]: {output}, alone {expected}"

    def _check_scored(self, request: Request) -> None:
        found, expected = self.scored[request.request_id], scores(request)
        lost = request.request_id in self.lost
        assert found == (expected[: len(found)] if lost else expected)
        weights = self.weights[request.request_id]
        if not lost:
            assert (np.concatenate(weights, axis=1).tolist() if weights else []) == attended(request)

    def _plan(self) -> StepPlan:
        scheduler = self.scheduler
        before, preempted = list(scheduler._running), list(scheduler._waiting._preempted)
        waiting = [group for queue in scheduler._waiting._queues.values() for group in queue]
        plan = scheduler.plan()
        left = [group for group in before if group not in scheduler._running]
        entered = [group for group in scheduler._running if group not in before]
        self._check_budgets(plan)
        self._check_encoded(plan)
        self._check_served(plan)
        for group in left:
            assert all(other.rank < group.rank for other in scheduler._running), "an older one preempted"
            assert all(other.request.priority < group.request.priority for other in entered), "preempted for its like"
        self._check_admitted(entered, preempted, waiting)
        return plan

    def _check_budgets(self, plan: StepPlan) -> None:
        assert sum(len(chunk.tokens) for chunk in plan.chunks) <= self.budgets.max_num_batched_tokens
        assert len({chunk.seq_id for chunk in plan.chunks}) == len(plan.chunks)
        groups = {sequence.seq_id: group.arrival for group in self.scheduler._running for sequence in group.live}
        runs = [arrival for arrival, _ in groupby(groups[chunk.seq_id] for chunk in plan.chunks)]
        assert len(set(runs)) == len(runs), "a group's chunks stand apart"
        assert sum(g.request.width for g in self.scheduler._running) <= self.budgets.max_num_seqs
        assert all(len(g.live) <= g.request.width for g in self.scheduler._running)
        cost = sum(job.item.cost for job in plan.encode)
        assert cost <= self.budgets.max_encode_tokens or len(plan.encode) == 1, "an oversized item has company"

    def _check_encoded(self, plan: StepPlan) -> None:
        """No item is encoded twice for one entry; a key has one entry at a time."""
        for job in plan.encode:
            key, at = self._positions[id(job.item)]
            entry = self.scheduler.cache.find(key)
            assert entry is not None
            assert (entry.table_id, at) not in self._encoded
            self._encoded.add((entry.table_id, at))

    def _check_served(self, plan: StepPlan) -> None:
        """Whoever can run does within as many steps as there can be groups."""
        served = {chunk.seq_id for chunk in plan.chunks}
        running = self.scheduler._running
        able = [g for g in running if g.readable and not any(s.seq_id in served for s in g.live)]
        self._unserved = Counter({g.arrival: self._unserved[g.arrival] + 1 for g in able})
        assert all(n <= self.budgets.max_num_seqs for n in self._unserved.values()), "a running group starves"

    def _check_admitted(self, entered: list[Group], preempted: list[Group], waiting: list[Group]) -> None:
        """By priority; then preempted groups by age; then whose owner holds the fewest places; then by age."""
        held = Counter[tuple[int, str]]()
        for group in self.scheduler._running:
            held[group.request.priority, group.request.owner] += group.request.width * (group not in entered)

        def place(group: Group) -> tuple[object, ...]:
            request = group.request
            return (
                request.priority,
                group not in preempted,
                group not in preempted and held[request.priority, request.owner],
            )

        left = [*preempted, *waiting]
        for group in entered:
            left.remove(group)
            assert all(place(group) <= place(other) for other in left), "admitted before its turn"
            akin = [other for other in left if (other in preempted) == (group in preempted)]
            akin = [other for other in akin if group in preempted or other.request.owner == group.request.owner]
            assert all(group.rank < other.rank for other in akin), "admitted before an older one"
            held[group.request.priority, group.request.owner] += group.request.width

    def _record(self, output: Output) -> None:
        request_id = output.request_id
        self.scored[request_id] += output.scored
        self.weights[request_id] += output.weights
        for delta in output.deltas:
            hypothesis = self.outputs[request_id, delta.index]
            assert hypothesis.reason is None, "a token after the end"
            assert (request_id, delta.index) not in self.cut, "a token after the stop string"
            hypothesis.tokens += delta.tokens
            hypothesis.logprobs += delta.logprobs
            hypothesis.reason, hypothesis.stop_token = delta.finish_reason, delta.stop_token
            hypothesis.total, hypothesis.score = delta.total, delta.score
            self._billed += len(delta.tokens)
        if str(output.error) == "it broke":
            assert output.finished
            self.lost.add(request_id)
        assert output.finished == (request_id not in self.scheduler._groups)

    def _check_blocks(self) -> None:
        """Each block's count is the number of tables that list it, and the others are free."""
        entries = {entry.table_id: entry for entry in self.scheduler.cache._entries.values()}
        owners = Counter(block for entry in entries.values() for block in entry.table.blocks)
        for group in self.scheduler._groups.values():
            owners.update(block for sequence in group.live for block in sequence.table.blocks)
            assert all(entries.get(entry.table_id) is entry for entry in group.entries)
        assert 0 not in owners
        assert all(self.pool.count(block) == tables for block, tables in owners.items())
        assert self.pool.free + len(owners) == self.pool.capacity
        self._check_usage(list(entries.values()))

    def _check_usage(self, entries: list[Entry]) -> None:
        used = {block for entry in entries if entry.users for block in entry.table.blocks}
        tables = [s.table for group in self.scheduler._groups.values() for s in group.live]
        own = {block for table in tables for block in table.blocks}
        assert self.scheduler.cache.usage == len(used) / self.pool.capacity
        assert self.scheduler.self_usage == len(own) / self.pool.capacity


def unique(requests: list[Request]) -> list[EncoderInput]:
    """The inputs of some requests, equal ones once."""
    return list({source.key: source for request in requests for source in request.inputs}.values())


def simulation(
    blocks: int = 100,
    *,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    max_encode_tokens: int = 64,
    block_size: int = 1,
) -> Simulation:
    """A simulation with `blocks` usable blocks and, unless told otherwise, room in every step."""
    return Simulation(Budgets(max_num_seqs, max_num_batched_tokens, max_encode_tokens, block_size), blocks + 1)


def lengths(plan: StepPlan) -> list[int]:
    """Tokens of each chunk."""
    return [len(chunk.tokens) for chunk in plan.chunks]


def encoded(plan: StepPlan) -> int:
    """Rows the plan's encode jobs write."""
    return sum(job.item.rows for job in plan.encode)
