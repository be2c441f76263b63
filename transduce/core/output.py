"""What the engine answers: records of tokens and numbers, step by step.

Filled by the scheduler. Knows no text and no search.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from transduce.errors import TransduceError

Weights = npt.NDArray[np.float32]
"""Cross-attention of some heads, [heads, tokens, rows]: of each token a share of 1 for every row."""

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one output position: the chosen token's, and the most likely tokens, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class Delta:
    """What one step added to one answer. `logprobs` is empty unless the request asked for them.

    total, score: of a beam that has ended, its log-probability and what it was ranked by.
    """

    index: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_token: int | None = None
    total: float | None = None
    score: float | None = None

    def extend(self, later: "Delta") -> None:
        """Take in what a later step added to the same answer."""
        self.tokens += later.tokens
        self.logprobs += later.logprobs
        self.finish_reason, self.stop_token = later.finish_reason, later.stop_token
        self.total, self.score = later.total, later.score


@dataclass(slots=True)
class Output:
    """What one step, or several in a row, did for one request; `finished` when every answer has ended.

    scheduled: when the request first became part of a step, if it did in this one. first, last: when the first and the
    last of the steps was done. In seconds since the epoch, as the engine sets them. error: why some answer is none: a
    RequestError where the request is at fault. scored: the request's `targets`, in their order. weights: of its tokens,
    in their order, some in each.
    """

    request_id: str
    deltas: list[Delta] = field(default_factory=list)
    finished: bool = False
    error: TransduceError | None = None
    scheduled: float | None = None
    first: float = 0.0
    last: float = 0.0
    scored: list[TokenLogprobs] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)

    def extend(self, later: "Output") -> None:
        """Take in what a later step did for the same request."""
        self.first = self.first if self.deltas else later.first
        self.scored += later.scored
        self.weights += later.weights
        mine = {delta.index: delta for delta in self.deltas}
        for delta in later.deltas:
            if delta.index in mine:
                mine[delta.index].extend(delta)
            else:
                self.deltas.append(delta)
        self.finished, self.last = later.finished, later.last
        self.error, self.scheduled = self.error or later.error, self.scheduled or later.scheduled


def merged(outputs: Iterable[Output]) -> list[Output]:
    """One for each request, each output taken in by the first of its request."""
    by_id: dict[str, Output] = {}
    for output in outputs:
        if output.request_id in by_id:
            by_id[output.request_id].extend(output)
        else:
            by_id[output.request_id] = output
    return list(by_id.values())
