"""What the frontend asks of the engine: plain records of ids and numbers.

Filled by the frontend. Knows no text, no tensor, no model.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Payload = Ids | npt.NDArray[np.float32]

EarlyStopping = bool | Literal["never"]
"""Whether a beam search ends when its pool of finished hypotheses is full (True), when no live one is likely to enter
it (False), or when none can ("never"; with a length penalty above 0, by the best length still possible)."""


@dataclass(frozen=True, slots=True, eq=False)
class EncoderItem:
    """One atomic piece of encoder input: a text, an audio window, an image.

    data: token ids [length], or features in the model's own shape.
    rows: encoder rows it writes as cross-attention KV.
    cost: encoder rows it computes, padding included (budgets count these).
    beside: token ids [length] whose rows, one each, follow those of features.
    """

    data: Payload
    rows: int
    cost: int
    beside: Ids = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def ids(self) -> Ids:
        """All its token ids; there may be none."""
        return cast(Ids, self.data) if self.data.dtype == np.int64 else self.beside

    def with_text(self, ids: Sequence[int]) -> "EncoderItem":
        """These features, and a text beside them."""
        return EncoderItem(self.data, self.rows + len(ids), self.cost + len(ids), np.array(ids, np.int64))


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
    the length in new tokens. answers: how many of the best finished ones are wanted, at most `width`. patience: how
    many are found before the search may end, in widths.
    """

    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    answers: int = 1
    patience: float = 1.0


@dataclass(frozen=True, slots=True)
class Read:
    """What is wanted from one decoder position: with `sampling`, one draw per index in `samples`, else the best token.

    logprobs: how many of the most likely tokens to report beside the chosen one; None: no log-probabilities at all.
    beams: not 0: so many of the best tokens instead, fewer if fewer can follow, with their log-probabilities, which
    rules and `sampling` edit and nothing normalises again; drawn without replacement where there is `sampling`.
    target: the log-probability of this token instead, as the model gives it, whatever the rules say; among: with only
    the tokens below this one to choose from.
    """

    position: int
    head: str = "lm"
    sampling: Sampling | None = None
    samples: tuple[int, ...] = (0,)
    logprobs: int | None = None
    beams: int = 0
    target: int | None = None
    among: int | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    """What cross-attention heads, each (layer, head), look at among the first `rows` encoder rows."""

    heads: tuple[tuple[int, int], ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Scored:
    """Log-probabilities of the prompt's tokens from position `start` (at least 1) on; `top`: of so many others too.

    targets: instead of the prompt's tokens these, the first of them after position `start` - 1, and so on.
    among: see Read. attention: to be told too, of every token that is computed, all of which see one encoder input and
    none of which is new.
    """

    start: int
    top: int = 0
    targets: tuple[int, ...] | None = None
    among: int | None = None
    attention: Attention | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One generation request in token ids.

    prompt: decoder tokens to start from, at least one.
    spans: ordered by start; tokens before the first span see no encoder row.
    width: hypotheses (samples, or beams) at once; counts against `max_num_seqs`.
    sampling: None is greedy. beams: None: `width` independent samples.
    scored: what to report of the prompt; without max_tokens the request is over with that.
    owner: whose it is; who holds the fewest places is served first, see `queue`. priority: lower ones go before others.
    leases: its encoder inputs are to be asked about again: they are kept before others, beyond its end, until it is
    aborted.
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
    priority: int = 0
    beams: Beams | None = None
    scored: Scored | None = None
    leases: bool = False

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
        assert self.scored is not None, "nothing is asked"
        return self.prompt[self.scored.start :] if self.scored.targets is None else self.scored.targets

    @property
    def attention(self) -> Attention | None:
        """What is asked of cross-attention."""
        return None if self.scored is None else self.scored.attention

    @property
    def answers(self) -> int:
        """Answers wanted."""
        return self.width if self.beams is None else self.beams.answers
