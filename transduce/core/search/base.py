"""The contract of a search: Row, Continuation, Round and Search, and how a hypothesis may end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from transduce.core.output import Delta, FinishReason, TokenLogprobs
from transduce.core.plan import Candidate
from transduce.core.request import Read, RuleSpec, Stopping
from transduce.errors import EngineError, RequestError, TransduceError


@dataclass(frozen=True, slots=True)
class Row:
    """One hypothesis' read result.

    indices: of each candidate's hypothesis, as the search numbers them; of beams, which have one, all candidates'.
    generated: new tokens so far. top: the likeliest tokens, if asked for. forbidden: whether no candidate is because
    the request's rules leave none.
    """

    indices: tuple[int, ...]
    generated: int
    candidates: tuple[Candidate, ...]
    top: tuple[tuple[int, float], ...] | None
    forbidden: bool = False

    def logprobs(self, chosen: Candidate) -> TokenLogprobs | None:
        """What to report of a candidate, if anything."""
        if self.top is None or chosen.logprob is None:
            return None
        return TokenLogprobs(chosen.token, chosen.logprob, self.top)


@dataclass(frozen=True, slots=True)
class Continuation:
    """A hypothesis that lives on: its parent's seq_id, its own index from now on, and the token it adds."""

    parent: int
    index: int
    token: int


@dataclass(slots=True)
class Round:
    """One token further. survivors: best first; none: the search is over. deltas: what the user hears of it."""

    survivors: list[Continuation] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)


class Search(Protocol):
    """How a group's hypotheses multiply, survive and end. A group starts with one hypothesis, of index 0."""

    def read(self, position: int, index: int, generated: int) -> Read:
        """What to ask of the row at `position`, the last one of hypothesis `index` with so many new tokens."""

    def advance(self, rows: Mapping[int, Row]) -> Round:
        """The next round, from the live hypotheses' rows by seq_id; a parent without a survivor is dropped.

        A delta with finish_reason "error" stands for an answer that no token could continue.
        """

    def serves(self, index: int, answer: int) -> bool:
        """Whether hypothesis `index` lives for this answer alone."""


def ending(stopping: Stopping, token: int, generated: int) -> tuple[FinishReason | None, int | None]:
    """Why a hypothesis ends with `token` as its `generated`-th new token, and the stop token, if at all."""
    if token in stopping.eos:
        return "stop", None
    if token in stopping.stop:
        return "stop", token
    return ("length" if generated >= stopping.max_tokens else None), None


def dead_end(rules: Iterable[RuleSpec], rows: Iterable[Row]) -> TransduceError:
    """Why no token can follow some of the rows of a request with these rules."""
    if all(row.forbidden for row in rows if not row.candidates):
        names = ", ".join(dict.fromkeys(rule.name for rule in rules))
        return RequestError(
            f"no token can follow: together, the request's rules ({names}) forbid every one; loosen one or leave it out"
        )
    return EngineError("no token can follow: the model computed NaN or infinity; load it with a wider dtype")
