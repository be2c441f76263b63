"""Which sequence obeys which logits rules, and in what state.

Owns the rules (one per distinct RuleSpec in use) and their states by sequence. Knows no rule's meaning.
"""

from collections.abc import Callable, Iterator, Sequence
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
    """States are persistent, so a fork is a reference; a recomputed token, after a preemption, is not seen twice.

    Of a sequence's last chunk, the states after its first read and after each later token are kept: where those were
    drafts, the next chunk starts after the last one that was right.
    """

    def __init__(self, build: Callable[[RuleSpec], Rule]) -> None:
        self._build = build
        self._rules: dict[RuleSpec, Rule] = {}
        self._uses: dict[RuleSpec, int] = {}
        self._progress: dict[int, tuple[_Progress, ...]] = {}

    def check(self, specs: Sequence[RuleSpec]) -> None:
        """Raise RequestError for a rule that cannot be built, while it still concerns its own request alone."""
        for spec in specs:
            if spec not in self._rules:
                self._build(spec)

    def update(self, plan: StepPlan) -> None:
        """Take in the plan's new, forked and dropped sequences."""
        for seq_id, specs, tokens in plan.started:
            if specs:
                states = tuple(self._use(spec).state() for spec in specs)
                self._progress[seq_id] = (self._after(_Progress(specs, states, 0), tokens),)
        for parent, child in plan.forks:
            if (progress := self._progress.get(parent)) is not None:
                self._progress[child] = progress
                for spec in progress[0].specs:
                    self._use(spec)
        for seq_id in plan.dropped:
            if (progress := self._progress.pop(seq_id, None)) is not None:
                self._release(progress[0].specs)

    def advance(self, chunk: Chunk) -> None:
        """Show a sequence's rules the chunk's tokens that they have not seen."""
        trail = self._progress.get(chunk.seq_id)
        if trail is None:
            return
        before = next((progress for progress in trail if progress.seen == chunk.start), trail[0])
        read = chunk.reads[0].position - chunk.start if chunk.reads else len(chunk.tokens)
        after = [self._after(before, chunk.tokens[max(0, before.seen - chunk.start) : read + 1])]
        for token in chunk.tokens[read + 1 :]:
            after.append(self._after(after[-1], (token,)))
        self._progress[chunk.seq_id] = tuple(after)

    def _after(self, before: _Progress, tokens: Sequence[int]) -> _Progress:
        states = list(before.states)
        for token in tokens:
            states = [self._rules[spec].advance(state, token) for spec, state in zip(before.specs, states, strict=True)]
        return _Progress(before.specs, tuple(states), before.seen + len(tokens))

    def obeys(self, seq_id: int, position: int) -> bool:
        """Whether any of a sequence's rules may edit the scores after a position of its chunk."""
        return any(
            self._rules[spec].holds(state)
            for progress in self._at(seq_id, position)
            for spec, state in zip(progress.specs, progress.states, strict=True)
        )

    def edit(self, reads: Sequence[tuple[int, int]], scores: Tensor) -> None:
        """Apply each row's rules to scores [rows, vocab]; row i is reads[i], a sequence and a position of its chunk.

        One call per distinct rule.
        """
        rows: dict[Rule, tuple[list[int], list[Any]]] = {}
        for row, (seq_id, position) in enumerate(reads):
            for progress in self._at(seq_id, position):
                for spec, state in zip(progress.specs, progress.states, strict=True):
                    at, states = rows.setdefault(self._rules[spec], ([], []))
                    at.append(row)
                    states.append(state)
        for rule in sorted(rows, key=lambda rule: rule.rank):
            at, states = rows[rule]
            rule.apply(at, scores, states)

    def _at(self, seq_id: int, position: int) -> Iterator[_Progress]:
        return (progress for progress in self._progress.get(seq_id, ()) if progress.seen == position + 1)

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
