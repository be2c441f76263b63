"""Which sequence obeys which rules: started, forked, dropped, recomputed."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from transduce.core.plan import Chunk, StepPlan
from transduce.core.request import Read, RuleSpec
from transduce.rules.base import LogitsRule
from transduce.runtime.rule_states import RuleStates


class Recorder(LogitsRule[tuple[int, ...]]):
    """Its state is all it was shown; `apply` writes the states' lengths into the scores."""

    name: ClassVar[str] = "recorder"
    rank: ClassVar[int] = 1

    def __init__(self, spec: RuleSpec) -> None:
        self.spec = spec
        self.applied: list[tuple[list[int], list[tuple[int, ...]]]] = []

    def state(self) -> tuple[int, ...]:
        return ()

    def advance(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        return (*state, token)

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[tuple[int, ...]]) -> None:
        self.applied.append((list(rows), list(states)))


A, B = RuleSpec("a"), RuleSpec("b")


def make() -> tuple[RuleStates, dict[RuleSpec, Recorder]]:
    built: dict[RuleSpec, Recorder] = {}

    def build(spec: RuleSpec) -> Recorder:
        built[spec] = Recorder(spec)
        return built[spec]

    return RuleStates(build), built


def chunk(seq_id: int, start: int, *tokens: int) -> Chunk:
    return Chunk(seq_id, start, tokens, (), ())


def test_equal_specs_share_one_rule_and_one_call() -> None:
    states, built = make()
    states.update(StepPlan(started=[(1, (A,), ()), (2, (A, B), ()), (3, (), ())]))
    for seq_id in (1, 2, 3):
        states.advance(chunk(seq_id, 0, seq_id, seq_id))
    states.edit([(3, 1), (2, 1), (1, 1)], torch.zeros(3, 4))
    assert built[A].applied == [([1, 2], [(2, 2), (1, 1)])]
    assert built[B].applied == [([1], [(2, 2)])]
    assert [states.obeys(seq_id, 1) for seq_id in (1, 2, 3)] == [True, True, False]


def test_a_fork_goes_its_own_way() -> None:
    states, built = make()
    states.update(StepPlan(started=[(1, (A,), ())]))
    states.advance(chunk(1, 0, 5, 6))
    states.update(StepPlan(forks=[(1, 2)]))
    states.advance(chunk(1, 2, 7))
    states.advance(chunk(2, 2, 8))
    states.edit([(1, 2), (2, 2)], torch.zeros(2, 4))
    assert built[A].applied == [([0, 1], [(5, 6, 7), (5, 6, 8)])]


def test_recomputed_tokens_are_not_seen_twice() -> None:
    """After a preemption the same positions run again, in other chunks, and then new ones."""
    states, built = make()
    states.update(StepPlan(started=[(1, (A,), ())]))
    states.advance(chunk(1, 0, 5, 6, 7))
    states.advance(chunk(1, 0, 5))
    states.advance(chunk(1, 1, 6, 7, 8))
    states.edit([(1, 3)], torch.zeros(1, 4))
    assert built[A].applied == [([0], [(5, 6, 7, 8)])]


def test_drafts_that_were_wrong_are_forgotten() -> None:
    """Each read's row is edited by the tokens up to it, and the next chunk says how many of them were right."""
    states, built = make()
    states.update(StepPlan(started=[(1, (A,), ())]))
    states.advance(Chunk(1, 0, (5, 6, 7, 8), (), (), tuple(Read(position) for position in (1, 2, 3))))
    states.edit([(1, 3), (1, 1)], torch.zeros(2, 4))
    states.advance(chunk(1, 3, 9))
    states.edit([(1, 3)], torch.zeros(1, 4))
    assert built[A].applied == [([0, 1], [(5, 6, 7, 8), (5, 6)]), ([0], [(5, 6, 7, 9)])]


def test_dropped_sequences_and_unused_rules_are_forgotten() -> None:
    states, built = make()
    states.update(StepPlan(started=[(1, (A,), ())]))
    states.update(StepPlan(forks=[(1, 2)], dropped=[1]))
    assert not states.obeys(1, -1)
    first = built[A]
    states.update(StepPlan(started=[(3, (A,), ())]))
    assert built[A] is first
    states.update(StepPlan(dropped=[2, 3]))
    states.update(StepPlan(started=[(4, (A,), ())]))
    assert built[A] is not first
