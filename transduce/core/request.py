"""What the frontend asks of the engine, and what the engine answers: plain records of ids and numbers.

Filled by the frontend (Request and its parts) and by the scheduler (Output). Knows no text, no tensor, no model.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Payload = npt.NDArray[np.int64] | npt.NDArray[np.float32]
FinishReason = Literal["stop", "length", "abort", "error"]


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
    """How a token is drawn. top_k 0, top_p 1 and min_p 0 leave the distribution whole; temperature > 0."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """When a hypothesis ends: at an `eos` or `stop` token, or after `max_tokens` new tokens."""

    max_tokens: int
    eos: frozenset[int] = frozenset()
    stop: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Read:
    """What is wanted from one decoder position: with `sampling`, one draw per index in `samples`, else the best token.

    logprobs: how many of the most likely tokens to report beside the chosen one; None: no log-probabilities at all.
    """

    position: int
    head: str = "lm"
    sampling: Sampling | None = None
    samples: tuple[int, ...] = (0,)
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One generation request in token ids.

    prompt: decoder tokens to start from, at least one.
    spans: ordered by start; tokens before the first span see no encoder row.
    width: hypotheses (samples) wanted; counts against `max_num_seqs`.
    sampling: None is greedy.
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


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one output position: the chosen token's, and the most likely tokens, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class Delta:
    """What one step added to one hypothesis. `logprobs` is empty unless the request asked for them."""

    index: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_token: int | None = None


@dataclass(slots=True)
class Output:
    """What one step did for one request; `finished` when every hypothesis has ended."""

    request_id: str
    deltas: list[Delta] = field(default_factory=list)
    finished: bool = False
    error: str | None = None
