"""The fields of all requests that say how to generate, under SamplingParams' names, and what they make of it."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, Strict, model_validator

from transduce.core.params import NUMBERS, BeamSearchParams, SamplingParams
from transduce.errors import RequestError
from transduce.frontend.frontend import Params
from transduce.frontend.prompts import Prompt
from transduce.frontend.sampling import NEUTRAL
from transduce.server.errors import FieldError, Unsupported
from transduce.server.protocol.base import FIRST, UNREAD, Body, Neutral, Priority, TokenIds, at_most, described
from transduce.server.protocol.guided import ResponseFormat, Written

MOST_LOGPROBS = 20
"""More of the likeliest tokens would make answers large."""

MOST_WORDS = 1_000
"""Stop strings, stop tokens, bad words and biases: each new token is compared with all of them, while others wait."""

MOST_SPELLED = 100
"""Token ids of a bad word."""

MOST_ALLOWED = 100_000
"""Tokens that may be generated alone, or not at all."""

MOST_CHOICES = 10_000
"""Texts of guided_choice: more are too long anyway."""

_LARGEST = 2**31 - 1
_Words = Field(max_length=MOST_WORDS, fail_fast=True)
_SAMPLING = frozenset(field.name for field in fields(SamplingParams))
_BEAMS = ("beam_width", *NEUTRAL)
"""Fields of BeamSearchParams that requests have too."""

_THEIRS: Mapping[str, str] = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "num_beams": "beam_width",
    "num_return_sequences": "n",
}
"""Names in transformers, and ours."""


class Drawing(Body):
    """How tokens are drawn. What is left out is as the checkpoint's generation_config.json has it."""

    unread: ClassVar[tuple[str, ...]] = UNREAD

    model: str | None = Field(None, description="A served model's name; left out, the one there is.")
    priority: Priority = 0
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
        "return_token_ids": (False,),
        "spaces_between_special_tokens": (True,),
        "structured_outputs": (),
    }
    words: ClassVar[Mapping[str, str]] = {"decoder prompt": "decoder_prompt"}

    n: int = Field(
        1,
        ge=1,
        le=128,
        description="Answers to each prompt: beside beam_width or use_beam_search so many of the beams, else so many "
        "samples. Left out, as many as the checkpoint returns.",
    )
    best_of: int | None = Field(
        None,
        ge=1,
        le=128,
        description="Draw so many and answer with the n likeliest, by their tokens' mean; not in a stream.",
    )
    max_tokens: int | None = Field(
        None, ge=0, description="New tokens, 0 beside prompt_logprobs; left out: to the checkpoint's own limit."
    )
    prompt_logprobs: int | None = Field(
        None,
        ge=0,
        le=MOST_LOGPROBS,
        description="Report the log-probability of each token of the decoder's prompt, and so many of the likeliest "
        "ones'; not in a stream.",
    )
    min_tokens: int | None = Field(None, ge=0)
    stop: Annotated[
        str | Annotated[list[str], _Words] | None,
        described(f"a text or a list of at most {MOST_WORDS:,} texts"),
    ] = None
    stop_token_ids: Annotated[TokenIds | None, at_most(MOST_WORDS)] = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logit_bias: Annotated[dict[Annotated[int, Strict(False)], float] | None, at_most(MOST_WORDS)] = Field(
        None, description="Token id to an addition in [-100, 100]."
    )
    allowed_token_ids: Annotated[TokenIds | None, at_most(MOST_ALLOWED)] = None
    bad_words: Annotated[
        Annotated[list[str | Annotated[TokenIds, Field(max_length=MOST_SPELLED)]], _Words] | None,
        described(f"a list of at most {MOST_WORDS:,} texts or lists of at most {MOST_SPELLED} token ids"),
    ] = None
    suppress_tokens: Annotated[TokenIds | None, at_most(MOST_ALLOWED)] = Field(
        None, description="Never generated; []: the checkpoint's neither."
    )
    begin_suppress_tokens: Annotated[TokenIds | None, at_most(MOST_ALLOWED)] = Field(
        None, description="Not generated first; []: the checkpoint's neither."
    )
    no_repeat_ngram_size: int | None = Field(
        None, ge=0, le=_LARGEST, description="No sequence of so many tokens twice; 0: off."
    )
    encoder_no_repeat_ngram_size: int | None = Field(
        None, ge=0, le=_LARGEST, description="No sequence of so many tokens that the encoder reads; 0: off."
    )
    forced_bos_token_id: int | None = Field(None, ge=-1, description="What follows the start token; -1: nothing.")
    forced_eos_token_id: Annotated[
        int | TokenIds | None, described("a token id or a list of token ids"), at_most(MOST_WORDS)
    ] = Field(None, description="What an answer of max_tokens ends in; -1 or []: nothing.")
    renormalize_logits: bool | None = Field(None, description="Of beams: normalise what the rules have left.")
    skip_special_tokens: bool = True
    truncate_prompt_tokens: int | None = Field(
        None, ge=1, description="Keep so many source tokens; left out, a source that is too long is refused."
    )
    guided_json: Annotated[dict[str, Any] | str | None, described("a JSON schema, or its text"), Written] = Field(
        None, description="A JSON schema that the answer follows."
    )
    guided_regex: str | None = Field(None, description="A regular expression that the whole answer matches.")
    guided_choice: Annotated[Annotated[list[str], FIRST] | None, at_most(MOST_CHOICES)] = Field(
        None, description="Texts, one of which is the answer."
    )
    guided_grammar: str | None = Field(None, description="A Lark grammar that the answer follows.")
    response_format: ResponseFormat | None = None
    use_beam_search: bool | None = Field(
        None,
        description="true: beam search, with n beams where beam_width is left out; false: none, even where the "
        "checkpoint asks for some.",
    )
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
    patience: float | None = Field(
        None,
        gt=0,
        le=NUMBERS["patience"].high,
        description="Search until so many times the beams have ended.",
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

    @model_validator(mode="before")
    @classmethod
    def _newer(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("structured_outputs") is not None:
            raise Unsupported(
                "structured_outputs is not supported; give its json, regex, choice or grammar as guided_json, "
                "guided_regex, guided_choice or guided_grammar, or a response_format",
                "structured_outputs",
            )
        for name, ours in _THEIRS.items():
            if isinstance(data, dict) and data.get(name) is not None:
                raise Unsupported(f"{name} is not supported; give {ours}", name)
        return data

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.stream and self.best_of not in (None, self.n):
            raise Unsupported("best_of in a stream is not supported; leave out stream", "best_of")
        if self.prompt_logprobs is not None and self.stream:
            raise Unsupported("prompt_logprobs in a stream are not supported; leave out stream", "prompt_logprobs")
        if self.stream_options is not None and not self.stream:
            message = "stream_options without stream; give stream: true, or leave stream_options out"
            raise FieldError(message, "stream_options", RequestError)
        return self

    def given(self) -> dict[str, Any]:
        given = super().given()
        if self.best_of == self.n:
            del given["best_of"]  # says nothing
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

    @property
    def renamed(self) -> Mapping[str, str]:
        schema = {"guided_json": "response_format"} if self.guided_json is None else {}
        width = {"beam_width": "n"} if self.use_beam_search and self.beam_width is None and self.n > 1 else {}
        return {"num_return_sequences": "n", **width, **schema}

    def params(self) -> Params:
        """As in Drawing; BeamSearchParams where beams are asked for, or how many of a checkpoint's are answers."""
        beams = self._beams()
        if not (self.use_beam_search or self.beam_width) and (max(self.n, self.best_of or 1) > 1 or self.temperature):
            for name in [name for name, neutral in NEUTRAL.items() if beams.get(name, neutral[0]) not in neutral]:
                raise RequestError(f"{name} is for beams, not for samples; give a beam_width too, or leave it out")
            return super().params()
        if not beams and not self.use_beam_search and "n" not in self.model_fields_set:
            return super().params()
        given = self.given()
        answers = given.pop("n", None)
        if given.pop("best_of", None) not in (None, self.n):
            raise RequestError(f"best_of={self.best_of} is for samples, not for beams; leave it out")
        return BeamSearchParams(**given, **beams, num_return_sequences=answers)

    def _beams(self) -> dict[str, Any]:
        """What the request says of beams, as arguments of BeamSearchParams."""
        beams = {name: value for name in _BEAMS if (value := getattr(self, name)) is not None}
        if self.use_beam_search and self.n > 1:
            return {"beam_width": self.n, **beams}
        if self.use_beam_search is not False:
            return beams
        if (width := self.beam_width or 1) > 1:
            raise RequestError(f"use_beam_search=False beside beam_width={width}; leave one of them out")
        return {**beams, "beam_width": 1}

    def pair(self, source: Prompt) -> dict[str, Any]:
        """A prompt for the engine."""
        salt = {} if self.cache_salt is None else {"cache_salt": self.cache_salt}
        return {"encoder_prompt": source, "decoder_prompt": self.decoder_prompt, **salt}
