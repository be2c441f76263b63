"""The fields of all requests that say how to generate, under SamplingParams' names, and what they make of it."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, Strict, model_validator

from transduce.core.params import NUMBERS, BeamSearchParams, SamplingParams
from transduce.errors import RequestError
from transduce.frontend.frontend import Params
from transduce.server.errors import Unsupported
from transduce.server.protocol.base import FIRST, UNREAD, Body, Neutral, TokenIds, described
from transduce.server.protocol.guided import ResponseFormat

MOST_LOGPROBS = 20
"""More of the likeliest tokens would make answers large."""

MOST_WORDS = 1_000
"""Stop strings and bad words: each new token is compared with all of them, while others wait."""

_LARGEST = 2**31 - 1
_Words = Field(max_length=MOST_WORDS, fail_fast=True)
_SAMPLING = frozenset(field.name for field in fields(SamplingParams))
_BEAMS: Mapping[str, object] = {"beam_width": None, "early_stopping": False, "length_penalty": 1}
"""Fields of BeamSearchParams that requests have too, and the values that ask for nothing."""


class Drawing(Body):
    """How tokens are drawn. What is left out is as the checkpoint's generation_config.json has it."""

    unread: ClassVar[tuple[str, ...]] = UNREAD

    model: str | None = Field(None, description="A served model's name; left out, the one there is.")
    temperature: float | None = Field(None, ge=0, le=NUMBERS["temperature"].high, description="0 is greedy.")
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=_LARGEST, description="0 or -1: all.")
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**64)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float | None = Field(
        None, ge=NUMBERS["repetition_penalty"].low, le=NUMBERS["repetition_penalty"].high
    )

    def params(self) -> Params:
        """The parameters of each prompt's request. Raises RequestError for what is out of range, or contradicts."""
        return SamplingParams(**self.given())

    def given(self) -> dict[str, Any]:
        """The arguments of SamplingParams that the request sets."""
        return {name: getattr(self, name) for name in self.model_fields_set & _SAMPLING}


class StreamOptions(Body):
    """How an answer is streamed."""

    unread: ClassVar[tuple[str, ...]] = ("include_obfuscation",)
    neutral: ClassVar[Neutral] = {"continuous_usage_stats": (False,)}

    include_usage: bool = Field(False, description="Send a last chunk with the usage, and null in the others.")


class Generating(Drawing):
    """What completions and chats have in common."""

    neutral: ClassVar[Neutral] = {
        "add_special_tokens": (True,),
        "priority": (0,),
        "prompt_logprobs": (),
        "return_token_ids": (False,),
        "spaces_between_special_tokens": (True,),
        "structured_outputs": (),
    }

    n: int = Field(1, ge=1, le=128, description="Answers to each prompt; above 1 it samples, or returns so many beams.")
    best_of: int | None = Field(None, description="The same as n.")
    max_tokens: int | None = Field(None, ge=1, description="New tokens; left out: to the checkpoint's own limit.")
    min_tokens: int | None = Field(None, ge=0)
    stop: Annotated[
        str | Annotated[list[str], _Words] | None,
        described(f"a text or a list of at most {MOST_WORDS:,} texts"),
    ] = None
    stop_token_ids: TokenIds | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logit_bias: dict[Annotated[int, Strict(False)], float] | None = Field(
        None, description="Token id to an addition in [-100, 100]."
    )
    allowed_token_ids: TokenIds | None = None
    bad_words: Annotated[
        Annotated[list[str | TokenIds], _Words] | None,
        described(f"a list of at most {MOST_WORDS:,} texts or lists of token ids"),
    ] = None
    skip_special_tokens: bool = True
    truncate_prompt_tokens: int | None = Field(
        None, ge=1, description="Keep so many source tokens; left out, a source that is too long is refused."
    )
    guided_json: Annotated[dict[str, Any] | str | None, described("a JSON schema, or its text")] = Field(
        None, description="A JSON schema that the answer follows."
    )
    guided_regex: str | None = Field(None, description="A regular expression that the whole answer matches.")
    guided_choice: Annotated[list[str], FIRST] | None = Field(None, description="Texts, one of which is the answer.")
    guided_grammar: str | None = Field(None, description="A Lark grammar that the answer follows.")
    response_format: ResponseFormat | None = None
    use_beam_search: bool = Field(False, description="Beam search, with n beams where beam_width is left out.")
    beam_width: int | None = Field(None, ge=1, description="Beam search with so many beams; 1 is greedy.")
    length_penalty: float | None = Field(
        None,
        ge=NUMBERS["length_penalty"].low,
        le=NUMBERS["length_penalty"].high,
        description="Beams are ranked by log-probability / length ** length_penalty.",
    )
    early_stopping: Annotated[bool | Literal["never"] | None, described("true, false or never")] = Field(
        None, description="End a beam search when so many beams have ended; never: when none can become better."
    )
    decoder_prompt: Annotated[str | TokenIds | None, described("a text or a list of token ids")] = Field(
        None, description="What the decoder starts from; left out: the start token alone."
    )
    cache_salt: str | None = Field(
        None, description="Requests with different salts share no encoder output, which timing could tell."
    )
    return_tokens_as_token_ids: bool = Field(False, description='Name tokens in logprobs "token_id:7".')
    stream: bool = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.best_of not in (None, self.n):
            message = f"best_of={self.best_of} with n={self.n}: choosing among more is not supported; leave it out"
            raise Unsupported(message, "best_of")
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options without stream; give stream: true, or leave stream_options out")
        return self

    def given(self) -> dict[str, Any]:
        given = super().given()
        schema = None if self.response_format is None else self.response_format.guided_json
        if schema is None:
            return given
        if "guided_json" in given:
            raise RequestError("guided_json and response_format: an answer has one structure; give one of them")
        return {**given, "guided_json": schema}

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def params(self) -> Params:
        """As in Drawing; BeamSearchParams where beams are asked for."""
        beams = {name: value for name in _BEAMS if (value := getattr(self, name)) is not None}
        if not (self.use_beam_search or self.beam_width) and (self.n > 1 or self.temperature):
            for name in [name for name, value in beams.items() if value != _BEAMS[name]]:
                raise RequestError(f"{name} is for beams, not for samples; give a beam_width too, or leave it out")
            return super().params()
        if not self.use_beam_search and not beams:
            return super().params()
        given = self.given()
        answers = given.pop("n", None)
        if self.use_beam_search and self.n > 1:
            beams.setdefault("beam_width", self.n)
        return BeamSearchParams(**given, **beams, num_return_sequences=answers)

    def pair(self, source: str | list[int]) -> dict[str, Any]:
        """A prompt for the engine."""
        salt = {} if self.cache_salt is None else {"cache_salt": self.cache_salt}
        return {"encoder_prompt": source, "decoder_prompt": self.decoder_prompt, **salt}
