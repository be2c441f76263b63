"""Random schedules: whatever the pool, the budgets, the company and the accidents, the promises hold.

The promises are in Simulation; a failing seed is a parameter of `run`.
"""

import random
from dataclasses import replace

import pytest

from tests.core.fake_runner import FORBIDS, VOCABULARY
from tests.core.guesses import Guesses
from tests.core.requests import SAMPLING, item, source
from tests.core.simulation import Simulation, unique
from transduce.core.capacity import Budgets
from transduce.core.request import Attention, Beams, EncoderInput, Request, RuleSpec, Sampling, Scored, Span, Stopping

PLENTY = 3000
"""Blocks that hold every encoder input and request of a schedule at once."""


class Accidents:
    """What goes wrong in a schedule: aborts, stop strings, failing steps, leases; each may be off."""

    def __init__(self, rng: random.Random, simulation: Simulation) -> None:
        self._rng = rng
        self._simulation = simulation
        rates = [rng.random() * 0.1 * (rng.random() < 0.4) for _ in range(4)]
        self._aborts, self._stops, self._failures, self._leases = rates
        self._held: list[bytes] = []

    @property
    def lossless(self) -> bool:
        """Whether every request ends by itself."""
        return not (self._aborts or self._failures)

    def step(self) -> None:
        """A step with what befalls it, before, meanwhile, or at its end."""
        self._befall()
        fails = self._rng.random() < self._failures
        self._simulation.step(fails, self._befall if self._rng.random() < 0.3 else lambda: None)

    def give_back(self) -> None:
        """End all leases."""
        for key in self._held:
            self._simulation.scheduler.cache.unhold(key)

    def _befall(self) -> None:
        simulation, rng = self._simulation, self._rng
        if simulation.requests and rng.random() < self._aborts:
            simulation.abort(rng.choice([*simulation.requests]))
        for (name, index), output in simulation.outputs.items():
            going = output.tokens and output.reason is None and (name, index) not in simulation.cut
            if going and name not in simulation.lost and rng.random() < self._stops:
                simulation.finish(name, index, rng.randrange(len(output.tokens)))
        keys = [source.key for request in simulation.requests.values() for source in request.inputs]
        if keys and rng.random() < self._leases and simulation.scheduler.cache.hold(key := rng.choice(keys)):
            self._held.append(key)
        if self._held and rng.random() < self._leases:
            simulation.scheduler.cache.unhold(self._held.pop(rng.randrange(len(self._held))))


def random_budgets(rng: random.Random) -> Budgets:
    return Budgets(
        max_num_seqs=rng.choice([1, 4, 8, 16]),
        max_num_batched_tokens=rng.choice([1, 2, 4, 8, 16, 64]),
        max_encode_tokens=rng.choice([1, 2, 4, 8, 32]),
        block_size=rng.choice([1, 1, 2, 2, 4, 8]),
        self_slabs=rng.choice([1, 1, 2, 4]),
        cross_slabs=rng.choice([1, 1, 3]),
    )


def random_source(rng: random.Random, content: int) -> EncoderInput:
    items = []
    for at in range(rng.choice([1, 1, 1, 2, 3])):
        rows = rng.randint(1, 6)
        items.append(item(content * 10 + at, rows, rows + rng.choice([0, 0, 2])))
    return source(*items)


def random_spans(rng: random.Random, inputs: tuple[EncoderInput, ...], prompt: int) -> tuple[Span, ...]:
    """None, one from the start, or several, the first perhaps late."""
    if not inputs or rng.random() < 0.1:
        return ()
    starts = sorted({rng.choice([0, rng.randrange(prompt + 3)]) for _ in range(rng.choice([1, 1, 2, 3]))})
    at = [rng.randrange(len(inputs)) for _ in starts]
    return tuple(Span(start, i, rng.randint(0, inputs[i].rows)) for start, i in zip(starts, at, strict=True))


def random_beams(rng: random.Random, width: int) -> Beams:
    return Beams(rng.choice([-1.0, 0.0, 1.0, 2.0]), rng.choice([False, True, "never"]), rng.randint(1, width))


def random_request(
    rng: random.Random, name: str, budgets: Budgets, sources: list[EncoderInput], growing: bool, priorities: list[int]
) -> Request:
    """`growing` ones come in small and stay long, so that the pool runs out while they run."""
    prompt = 1 if growing else rng.choice([1, 2, 4, rng.randint(1, 20)])
    max_tokens = rng.randint(8, 20) if growing else rng.randint(1, 8)
    kinds = rng.choice([1, 1, 3])
    scored = Scored(rng.randint(1, prompt), rng.choice([0, 2])) if rng.random() < 0.2 else None
    inputs = tuple(rng.choice(sources) for _ in range(rng.choice([0, 1, 1, 1, 2])))
    ends = rng.sample(range(VOCABULARY), 3) if rng.random() < (0.1 if growing else 0.5) else []
    width = rng.choice([1, 1, 1, rng.randint(1, min(6, budgets.max_num_seqs))])
    only_scored = scored is not None and prompt > 1 and width == 1 and rng.random() < 0.5
    if scored is not None and only_scored and prompt % 3:
        scored = replace(scored, attention=Attention(((0, 0), (1, 2)), 2))
    return Request(
        request_id=name,
        prompt=tuple(rng.randrange(kinds) for _ in range(prompt)),
        inputs=tuple(EncoderInput(s.key, s.items) for s in inputs),
        spans=random_spans(rng, inputs, prompt),
        stopping=Stopping(0 if only_scored else max_tokens, frozenset(ends[:1]), frozenset(ends[1:])),
        sampling=rng.choice([None, SAMPLING, Sampling(1.0, 0, 1.0, 0.0, seed=2, keep=2)]),
        width=width,
        beams=random_beams(rng, width) if rng.random() < 0.5 and not only_scored else None,
        logprobs=rng.choice([None, None, 0, 2]),
        rules=(RuleSpec(FORBIDS, (rng.randint(1, 40),)),) if rng.random() < 0.2 else (),
        owner=rng.choice("abc"),
        priority=rng.choice(priorities),
        scored=with_targets(scored, prompt) if scored is not None and prompt % 2 and not only_scored else scored,
    )


def with_targets(scored: Scored, prompt: int) -> Scored:
    """Of other tokens than the prompt's own, up to what follows its last one, which is read for an answer too."""
    return replace(scored, targets=tuple(range(prompt - scored.start + 1)))


def blocks_at_most(budgets: Budgets, request: Request) -> int:
    """What a request may need of the pool, sharing nothing."""
    tokens = len(request.prompt) + request.stopping.max_tokens - 1
    cross = sum(budgets.cross_blocks(source.rows) for source in request.inputs)
    return cross + request.width * budgets.self_blocks(tokens)


def most_steps(requests: list[Request]) -> int:
    """Every token and item a step of its own, all of it again per preemption by an older one, and some arrivals."""
    work = [r.width * (len(r.prompt) + r.stopping.max_tokens) + sum(len(s.items) for s in r.inputs) for r in requests]
    return (len(requests) + 1) * sum(work) + 50


def run(seed: int) -> Simulation:
    """One schedule."""
    rng = random.Random(seed)
    budgets = random_budgets(rng)
    sources = [random_source(rng, content) for content in range(rng.randint(1, 4))]
    growing = rng.random() < 0.6
    priorities = rng.choice([[0], [0, 1], [-1, 0, 0, 7]])
    requests = [random_request(rng, f"r{i}", budgets, sources, growing, priorities) for i in range(rng.randint(1, 7))]
    blocks = max(blocks_at_most(budgets, request) for request in requests)
    slack = rng.choice([0, 1, blocks // 4, blocks // 2, PLENTY])
    guesses = Guesses(rng, rng.choice([0.0, 0.2, 1.0])) if rng.random() < 0.5 else None
    simulation = Simulation(budgets, blocks + slack + 1, guesses)
    accidents = Accidents(rng, simulation)
    arriving = sorted(requests, key=lambda _: rng.random())
    lately = rng.choice([0.0, 0.0, 0.5, 0.8])
    while arriving or simulation.scheduler.unfinished:
        while arriving and rng.random() >= lately:
            simulation.add(arriving.pop())
        assert simulation.steps < most_steps(requests), "starved"
        accidents.step()
    counters = simulation.scheduler.counters
    if accidents.lossless and slack == PLENTY and not counters.preemptions:  # one amid its items begins these again
        rows = sum(source.rows for source in unique(requests))
        assert counters.encoded_rows == rows, "encoded twice without need"
    accidents.give_back()
    simulation.check()
    return simulation


def check_seeds(seeds: range) -> None:
    preemptions = lease_evictions = accepted = hits = 0
    for seed in seeds:
        try:
            simulation = run(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        preemptions += simulation.scheduler.counters.preemptions
        lease_evictions += simulation.scheduler.cache.lease_evictions
        hits += simulation.scheduler.prefixes.hits
        accepted += simulation.scheduler.counters.accepted
    assert preemptions > len(seeds) / 20, "these schedules hardly test preemption"
    assert lease_evictions > 0, "these schedules never take a leased entry"
    assert hits > len(seeds) / 20, "these schedules hardly test prefixes"
    assert accepted > len(seeds) / 4, "these schedules hardly test drafts"


@pytest.mark.parametrize("block", range(4))
def test_random_schedules(block: int) -> None:
    check_seeds(range(block * 400, (block + 1) * 400))


@pytest.mark.long
@pytest.mark.parametrize("block", range(1, 40))
def test_more_random_schedules(block: int) -> None:
    check_seeds(range(block * 1000, (block + 1) * 1000))
