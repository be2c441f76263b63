"""/v1/score_target: sources and targets, and how likely these are."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field
from typing_extensions import TypedDict

from transduce.frontend.outputs import TargetScore
from transduce.server.protocol.base import UNREAD, Body, Priority, Usage
from transduce.server.protocol.prompt_logprobs import finite
from transduce.server.protocol.texts import Texts, several


class ScoreRequest(Body):
    """Sources and targets, as many of both, or one of them for all of the others."""

    unread: ClassVar[tuple[str, ...]] = UNREAD
    words: ClassVar[Mapping[str, str]] = {"prompt": "source"}

    model: str | None = Field(None, description="A served model's name; left out, the one there is.")
    priority: Priority = 0
    source: Texts = Field(description="What the encoder reads: a text, a list of token ids, or a list of either.")
    target: Texts = Field(description="What is scored: a text, a list of token ids, or a list of either.")
    truncate_prompt_tokens: int | None = Field(
        None, ge=1, description="Keep so many tokens of each source; left out, one that is too long is refused."
    )
    cache_salt: str | None = Field(
        None, description="Requests with different salts share no encoder output, which timing could tell."
    )

    @property
    def sources(self) -> Sequence[str | list[int]]:
        """In order."""
        return several(self.source)

    @property
    def targets(self) -> Sequence[str | list[int]]:
        """In order."""
        return several(self.target)


class Score(TypedDict):
    """A target's log-probability, whole, per token, and of each of its tokens, EOS among them."""

    index: int
    object: str
    total_logprob: float
    mean_logprob: float
    token_ids: list[int]
    token_logprobs: list[float]


class Scores(TypedDict):
    """One for each pair, in order."""

    id: str
    object: str
    created: int
    model: str
    data: list[Score]
    usage: Usage


def score(index: int, scored: TargetScore) -> Score:
    """As JSON has it."""
    logprobs = [*map(finite, scored.logprobs)]
    total = math.fsum(logprobs)
    return {
        "index": index,
        "object": "target_score",
        "total_logprob": total,
        "mean_logprob": total / len(logprobs),
        "token_ids": scored.token_ids,
        "token_logprobs": logprobs,
    }
