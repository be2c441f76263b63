"""/v1/completions: text or token ids for the encoder, and the decoder's text back."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NotRequired, Self

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from transduce.server.errors import Unsupported
from transduce.server.protocol.base import Neutral, TokenIds, Usage, described
from transduce.server.protocol.sampling import MOST_LOGPROBS, Generating

MOST_PROMPTS = 2_048
"""Of one request: they are let in together, and none is looked at again before the others have begun."""

_Some = Field(min_length=1, fail_fast=True)
_Several = Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)


class CompletionRequest(Generating):
    """A prompt is what the encoder reads; `decoder_prompt` is what the decoder starts from."""

    neutral: ClassVar[Neutral] = {**Generating.neutral, "suffix": ("",)}

    prompt: Annotated[
        str | Annotated[list[str], _Several] | Annotated[list[int], _Some] | Annotated[list[TokenIds], _Several],
        described(f"a text, a list of token ids, or a list of either, with at least one and at most {MOST_PROMPTS:,}"),
    ] = Field(description="A text, a list of token ids, or a list of either.")
    echo: bool = Field(False, description="Put the prompt in front of the answer's text.")
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MOST_LOGPROBS,
        description="Report each token's log-probability, and so many of the likeliest ones'.",
    )

    @model_validator(mode="after")
    def _echo_has_no_logprobs(self) -> Self:
        if self.echo and self.logprobs is not None:
            raise Unsupported(
                "echo with logprobs: the encoder's tokens have no log-probabilities; leave one out", "echo"
            )
        return self

    @property
    def sources(self) -> list[str | list[int]]:
        """The prompts, in order."""
        several = isinstance(self.prompt, list) and not isinstance(self.prompt[0], int)
        sources: Sequence[Any] = self.prompt if several else [self.prompt]
        return list(sources)


class CompletionLogprobs(TypedDict):
    """By token of the answer. text_offset: characters of the tokens before."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(TypedDict):
    """One answer, or what a chunk adds to it. index: prompt * n + sample.

    stop_reason: the stop string or token that ended it; null for EOS.
    """

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None


class Completion(TypedDict):
    """The answers; or, in a stream, what one chunk adds to them."""

    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: NotRequired[Usage | None]
