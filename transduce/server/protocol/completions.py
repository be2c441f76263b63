"""/v1/completions: text or token ids for the encoder, and the decoder's text back."""

from collections.abc import Sequence
from typing import ClassVar, NotRequired, Self

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from transduce.server.errors import Unsupported
from transduce.server.protocol.base import Neutral, Usage
from transduce.server.protocol.prompt_logprobs import PromptLogprobs
from transduce.server.protocol.sampling import MOST_LOGPROBS, Generating
from transduce.server.protocol.texts import Texts, several


class CompletionRequest(Generating):
    """A prompt is what the encoder reads; `decoder_prompt` is what the decoder starts from."""

    neutral: ClassVar[Neutral] = {**Generating.neutral, "suffix": ("",)}

    prompt: Texts = Field(description="A text, a list of token ids, or a list of either.")
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
                "echo with logprobs: the encoder's tokens have no log-probabilities; leave one out, ask for "
                "prompt_logprobs of a decoder_prompt, or for the score of a text at /v1/score_target",
                "echo",
            )
        return self

    @property
    def sources(self) -> Sequence[str | list[int]]:
        """The prompts, in order."""
        return several(self.prompt)


class CompletionLogprobs(TypedDict):
    """By token of the answer. text_offset: characters of the tokens before.

    Of two among the likeliest that add the same text, the likelier one is told.
    """

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(TypedDict):
    """One answer, or what a chunk adds to it. index: prompt * n + sample.

    stop_reason: the stop string or token that ended it; null for EOS. prompt_logprobs: of the decoder's prompt, as vLLM
    has them.
    """

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    prompt_logprobs: PromptLogprobs | None


class Completion(TypedDict):
    """The answers; or, in a stream, what one chunk adds to them."""

    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: NotRequired[Usage | None]
