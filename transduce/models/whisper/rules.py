"""Whisper's grammar of timestamps: in pairs, never decreasing, the first one first, and forced when likely."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from transduce.rules.base import LogitsRule


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
        for row, marks in zip(rows, states, strict=True):
            self._forbid(scores[row], marks)
        self._force(rows, scores)

    def _forbid(self, scores: Tensor, marks: Marks) -> None:
        """What the tokens so far rule out of scores [vocab]."""
        scores[self._no_timestamps] = -torch.inf
        if marks.seen == self._begin:
            scores[: self._zero] = -torch.inf
            if self._first is not None:
                scores[self._zero + self._first + 1 :] = -torch.inf
        if marks.last and marks.before:
            scores[self._zero :] = -torch.inf
        elif marks.last:
            scores[: self._eos] = -torch.inf
        if marks.latest is not None:
            opening = marks.last and not marks.before  # an end's pair may begin at the very same time
            scores[self._zero : marks.latest + (not opening)] = -torch.inf

    def _force(self, rows: Sequence[int], scores: Tensor) -> None:
        """Leave only timestamps where, together, they are likelier than the best other token."""
        index = torch.tensor(rows, device=scores.device)
        logprobs = scores[index].log_softmax(-1)
        forced = logprobs[:, self._zero :].logsumexp(-1) > logprobs[:, : self._zero].max(-1).values
        scores[index[forced], : self._zero] = -torch.inf
