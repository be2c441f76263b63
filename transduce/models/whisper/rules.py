"""Whisper's grammar of timestamps: in pairs, never decreasing, the first one first, and forced when likely."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from transduce.kernels import ops
from transduce.rules.base import LogitsRule
from transduce.rules.entries import whole


class Marks(NamedTuple):
    """What the grammar remembers. seen: tokens so far, prompt included; the rest is about those after the prompt.

    last, before: whether the last token and the one before it are timestamps (a missing one before counts as one).
    latest: the last timestamp.
    """

    seen: int = 0
    last: bool = False
    before: bool = True
    latest: int | None = None


class Timestamps(LogitsRule[Marks]):
    """args: begin, the prompt's length; no_timestamps, after which the timestamps' ids follow; eos; and the most that
    the first timestamp may lie behind the window's start, in steps, or None.
    """

    name: ClassVar[str] = "whisper_timestamps"
    rank: ClassVar[int] = 200

    def __init__(
        self, vocab_size: int, device: torch.device, begin: int, no_timestamps: int, eos: int, first: int | None
    ) -> None:
        self._begin = begin
        self._no_timestamps = no_timestamps
        self._zero = no_timestamps + 1
        self._eos = eos
        self._first = first

    def state(self) -> Marks:
        return Marks()

    def advance(self, state: Marks, token: int) -> Marks:
        if state.seen < self._begin:
            return Marks(state.seen + 1)
        stamp = token >= self._zero
        before = state.last if state.seen > self._begin else True
        return Marks(state.seen + 1, stamp, before, token if stamp else state.latest)

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[Marks]) -> None:
        index = whole(rows, scores.device)
        for row, marks in zip(rows, states, strict=True):
            if (least := self._least_text(marks)) > 0:
                scores[row, :least] = -torch.inf
        scores[index, self._no_timestamps] = -torch.inf
        self._bound(index, scores[:, self._zero :], states)
        self._force(index, scores)

    def _least_text(self, marks: Marks) -> int:
        """The lowest token that may follow."""
        if marks.seen == self._begin:
            return self._zero
        return self._eos if marks.last and not marks.before else 0

    def _bound(self, index: Tensor, stamps: Tensor, states: Sequence[Marks]) -> None:
        """Forbid what the tokens so far rule out of the timestamps' scores [all rows, timestamps]."""
        steps = torch.arange(stamps.shape[1], device=stamps.device)
        bounds = torch.tensor([self._stamps(marks, len(steps)) for marks in states], device=stamps.device)
        outside = (steps < bounds[:, :1]) | (steps >= bounds[:, 1:])
        stamps[index] = stamps[index].masked_fill(outside, -torch.inf)

    def _stamps(self, marks: Marks, count: int) -> tuple[int, int]:
        """The steps [first, last) of timestamps that may follow, of so many."""
        if marks.seen == self._begin:
            return 0, count if self._first is None else self._first + 1
        if marks.last and marks.before:
            return 0, 0
        if marks.latest is None:
            return 0, count
        opening = marks.last and not marks.before  # an end's pair may begin at the very same time
        return marks.latest - self._zero + (not opening), count

    def _force(self, index: Tensor, scores: Tensor) -> None:
        """Leave only timestamps where, together, they are likelier than the best other token.

        Logits tell that as log-probabilities do. All rows are looked at, as they lie in memory.
        """
        _, _, stamps = ops.top_k_lse(scores[:, self._zero :], 1)
        text, _ = ops.best(scores[:, : self._zero])
        scores[index[(stamps > text)[index]], : self._zero] = -torch.inf
