"""What the frontend asks of the engine, and what the engine answers: plain records of ids and numbers.

Filled by the frontend (Request and its parts) and by the scheduler (Output). Knows no text, no tensor, no model.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from transduce.errors import TransduceError

Payload = npt.NDArray[np.int64] | npt.NDArray[np.float32]
FinishReason = Literal["stop", "length", "abort", "error"]
EarlyStopping = bool | Literal["never"]
"""Whether a beam search ends when its pool of finished hypotheses is full (True), when no live one is likely to enter
it (False), or when none can ("never"; with a length penalty above 0, by the best length still possible)."""


@dataclass(frozen=True, slots=True, eq=False)
class EncoderItem:
    """One atomic piece of encoder input: a text, an audio window, an image.

    data: token ids [length], or features in the model's own shape.
    rows: encoder rows it writes as cross-attention KV.
    cost: encoder rows it computes, padding included (budgets count these).
    """

    data: Payload
    rows: int
    cost: int


@dataclass(frozen=True, slots=True, eq=False)
class EncoderInput:
    """One encoder input: its items' rows stand one after another in one cross block table.

    key: content digest; inputs with equal keys are encoded once and share pages.
    """

    key: bytes
    items: tuple[EncoderItem, ...]

    @property
    def rows(self) -> int:
        """Rows of cross-attention KV over all items."""
        return sum(item.rows for item in self.items)


@dataclass(frozen=True, slots=True)
class Span:
    """From decoder position `start` on, tokens see the first `rows` rows of encoder input `source`."""

    start: int
    source: int
    rows: int


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """A logits rule by name, with hashable arguments; the runner builds it. Equal specs share one rule."""

    name: str
    args: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn. top_k 0, top_p 1 and min_p 0 leave the distribution whole; temperature > 0.

    keep: so many of the likeliest tokens stay, whatever the others say; beams need one that is no end. normalized:
    whether the log-probabilities of drawn beams are of what is left to draw from, as those of samples always are.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    keep: int = 1
    normalized: bool = False


@dataclass(frozen=True, slots=True)
class Stopping:
    """When a hypothesis ends: at an `eos` or `stop` token, or after `max_tokens` new tokens."""

    max_tokens: int
    eos: frozenset[int] = frozenset()
    stop: frozenset[int] = frozenset()

    @property
    def ends(self) -> frozenset[int]:
        """All tokens that end a hypothesis."""
        return self.eos | self.stop


@dataclass(frozen=True, slots=True)
class Beams:
    """Beam search of a request's `width`. A finished hypothesis scores its log-probability / length ** length_penalty,
    the length in new tokens. answers: how many of the best finished ones are wanted, at most `width`.
    """

    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    answers: int = 1


@dataclass(frozen=True, slots=True)
class Read:
    """What is wanted from one decoder position: with `sampling`, one draw per index in `samples`, else the best token.

    logprobs: how many of the most likely tokens to report beside the chosen one; None: no log-probabilities at all.
    beams: not 0: so many of the best tokens instead, fewer if fewer can follow, with their log-probabilities, which
    rules and `sampling` edit and nothing normalises again; drawn without replacement where there is `sampling`.
    target: the log-probability of this token instead, as the model gives it, whatever the rules say.
    """

    position: int
    head: str = "lm"
    sampling: Sampling | None = None
    samples: tuple[int, ...] = (0,)
    logprobs: int | None = None
    beams: int = 0
    target: int | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """Log-probabilities of the prompt's tokens from position `start` (at least 1) on; `top`: of so many others too.

    targets: instead of the prompt's tokens these, the first of them after position `start` - 1, and so on.
    """

    start: int
    top: int = 0
    targets: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One generation request in token ids.

    prompt: decoder tokens to start from, at least one.
    spans: ordered by start; tokens before the first span see no encoder row.
    width: hypotheses (samples, or beams) at once; counts against `max_num_seqs`.
    sampling: None is greedy. beams: None: `width` independent samples.
    scored: what to report of the prompt; without max_tokens the request is over with that.
    owner: requests queue per owner, owners are served in turn.
    """

    request_id: str
    prompt: tuple[int, ...]
    inputs: tuple[EncoderInput, ...]
    spans: tuple[Span, ...]
    stopping: Stopping
    sampling: Sampling | None = None
    width: int = 1
    logprobs: int | None = None
    rules: tuple[RuleSpec, ...] = ()
    owner: str = ""
    beams: Beams | None = None
    scored: Scored | None = None

    def seen(self, start: int, length: int) -> Iterator[tuple[int, Span | None]]:
        """What decoder positions [start, start + length) see, as runs (length, span); None: no encoder row."""
        position, end = start, start + length
        while position < end:
            at = bisect_right(self.spans, position, key=lambda span: span.start)
            until = min(end, self.spans[at].start) if at < len(self.spans) else end
            yield until - position, self.spans[at - 1] if at else None
            position = until

    @property
    def only_scored(self) -> bool:
        """Whether no new token is wanted at all."""
        return self.stopping.max_tokens == 0

    @property
    def computed(self) -> tuple[int, ...]:
        """The prompt's tokens that go through the decoder: where nothing follows the last one, its row is of no use."""
        return self.prompt[:-1] if self.only_scored else self.prompt

    @property
    def targets(self) -> tuple[int, ...]:
        """The tokens that `scored` asks about, one for each position from `scored.start` - 1 on."""
        if self.scored is None:
            return ()
        return self.prompt[self.scored.start :] if self.scored.targets is None else self.scored.targets

    @property
    def answers(self) -> int:
        """Answers wanted."""
        return self.width if self.beams is None else self.beams.answers


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
    RequestError where the request is at fault. scored: the request's `targets`, in their order.
    """

    request_id: str
    deltas: list[Delta] = field(default_factory=list)
    finished: bool = False
    error: TransduceError | None = None
    scheduled: float | None = None
    first: float = 0.0
    last: float = 0.0
    scored: list[TokenLogprobs] = field(default_factory=list)

    def extend(self, later: "Output") -> None:
        """Take in what a later step did for the same request."""
        self.first = self.first if self.deltas else later.first
        self.scored += later.scored
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
