"""Which sequence obeys which logits rules, and in what state.

Owns the rules (one per distinct RuleSpec in use) and their states by sequence. Knows no rule's meaning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from transduce.core.plan import Chunk, StepPlan
from transduce.core.request import RuleSpec
from transduce.rules.base import LogitsRule

Rule = LogitsRule[Any]


@dataclass(frozen=True, slots=True)
class _Progress:
    """A sequence's rules with their states after its first `seen` tokens."""

    specs: tuple[RuleSpec, ...]
    states: tuple[Any, ...]
    seen: int


class RuleStates:
    """States are persistent, so a fork is a reference; a recomputed token, after a preemption, is not seen twice."""

    def __init__(self, build: Callable[[RuleSpec], Rule]) -> None:
        self._build = build
        self._rules: dict[RuleSpec, Rule] = {}
        self._uses: dict[RuleSpec, int] = {}
        self._progress: dict[int, _Progress] = {}

    def check(self, specs: Sequence[RuleSpec]) -> None:
        """Raise RequestError for a rule that cannot be built, while it still concerns its own request alone."""
        for spec in specs:
            if spec not in self._rules:
                self._build(spec)

    def update(self, plan: StepPlan) -> None:
        """Take in the plan's new, forked and dropped sequences."""
        for seq_id, specs in plan.started:
            if specs:
                states = tuple(self._use(spec).state() for spec in specs)
                self._progress[seq_id] = _Progress(specs, states, 0)
        for parent, child in plan.forks:
            if (progress := self._progress.get(parent)) is not None:
                self._progress[child] = progress
                for spec in progress.specs:
                    self._use(spec)
        for seq_id in plan.dropped:
            if (progress := self._progress.pop(seq_id, None)) is not None:
                self._release(progress.specs)

    def advance(self, chunk: Chunk) -> None:
        """Show a sequence's rules the chunk's tokens that they have not seen."""
        progress = self._progress.get(chunk.seq_id)
        if progress is None:
            return
        states = list(progress.states)
        for token in chunk.tokens[max(0, progress.seen - chunk.start) :]:
            states = [
                self._rules[spec].advance(state, token) for spec, state in zip(progress.specs, states, strict=True)
            ]
        seen = max(progress.seen, chunk.start + len(chunk.tokens))
        self._progress[chunk.seq_id] = _Progress(progress.specs, tuple(states), seen)

    def obeys(self, seq_id: int) -> bool:
        """Whether a sequence has any rule."""
        return seq_id in self._progress

    def edit(self, seq_ids: Sequence[int], scores: Tensor) -> None:
        """Apply each row's rules to scores [rows, vocab]; row i belongs to seq_ids[i]. One call per distinct rule."""
        rows: dict[RuleSpec, tuple[list[int], list[Any]]] = {}
        for row, seq_id in enumerate(seq_ids):
            if (progress := self._progress.get(seq_id)) is not None:
                for spec, state in zip(progress.specs, progress.states, strict=True):
                    at, states = rows.setdefault(spec, ([], []))
                    at.append(row)
                    states.append(state)
        for spec in sorted(rows, key=lambda spec: self._rules[spec].rank):
            at, states = rows[spec]
            self._rules[spec].apply(at, scores, states)

    def _use(self, spec: RuleSpec) -> Rule:
        if spec not in self._rules:
            self._rules[spec] = self._build(spec)
        self._uses[spec] = self._uses.get(spec, 0) + 1
        return self._rules[spec]

    def _release(self, specs: tuple[RuleSpec, ...]) -> None:
        for spec in specs:
            self._uses[spec] -= 1
            if not self._uses[spec]:
                del self._uses[spec], self._rules[spec]
