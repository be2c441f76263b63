"""What becomes of a group's hypotheses: candidates in, surviving continuations out.

Owns when a hypothesis ends. Knows no pages and no runner; a Search holds no sequence, only what it must remember.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from transduce.core.plan import Candidate
from transduce.core.request import Delta, FinishReason, Read, Request, Stopping, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Row:
    """One hypothesis' read result.

    indices: output index of each candidate. generated: new tokens so far. top: the likeliest tokens, if asked for.
    """

    indices: tuple[int, ...]
    generated: int
    candidates: tuple[Candidate, ...]
    top: tuple[tuple[int, float], ...] | None


@dataclass(frozen=True, slots=True)
class Continuation:
    """A parent hypothesis and the token that follows it; `finish` when it ends there."""

    parent: int
    index: int
    token: int
    logprobs: TokenLogprobs | None
    finish: FinishReason | None
    stop_token: int | None

    @property
    def delta(self) -> Delta:
        """What the user hears of it."""
        logprobs = [] if self.logprobs is None else [self.logprobs]
        return Delta(self.index, [self.token], logprobs, self.finish, self.stop_token)


class Search(Protocol):
    """How a group's hypotheses multiply, survive and end."""

    def read(self, position: int, index: int, generated: int) -> Read:
        """What to ask of the row at `position`, the last one of hypothesis `index` with so many new tokens."""

    def advance(self, rows: Mapping[int, Row]) -> list[Continuation]:
        """Continuations of the live hypotheses, by seq_id; a parent without one is dropped."""


class Sample:
    """Independent hypotheses: `width` samples of one prompt, or the single greedy one."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def read(self, position: int, index: int, generated: int) -> Read:
        """The first round draws every sample from the prompt's one row; later each hypothesis draws its own."""
        samples = (index,) if generated else tuple(range(self._request.width))
        return Read(position, "lm", self._request.sampling, samples, self._request.logprobs)

    def advance(self, rows: Mapping[int, Row]) -> list[Continuation]:
        """One continuation per candidate."""
        return [
            self._continue(seq_id, row, index, candidate)
            for seq_id, row in rows.items()
            for index, candidate in zip(row.indices, row.candidates, strict=False)  # no candidates: all forbidden
        ]

    def _continue(self, seq_id: int, row: Row, index: int, candidate: Candidate) -> Continuation:
        finish, stop_token = ending(self._request.stopping, candidate.token, row.generated + 1)
        logprobs = None
        if candidate.logprob is not None:
            logprobs = TokenLogprobs(candidate.token, candidate.logprob, row.top or ())
        return Continuation(seq_id, index, candidate.token, logprobs, finish, stop_token)


def ending(stopping: Stopping, token: int, generated: int) -> tuple[FinishReason | None, int | None]:
    """Why a hypothesis ends with `token` as its `generated`-th new token, and the stop token, if at all."""
    if token in stopping.eos:
        return "stop", None
    if token in stopping.stop:
        return "stop", token
    return ("length" if generated >= stopping.max_tokens else None), None


def make(request: Request) -> Search:
    """The search a request asks for."""
    return Sample(request)
