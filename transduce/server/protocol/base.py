"""Body: what all requests have in common. A field that would change the answer is followed or refused by name."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from transduce.core.checks import shown
from transduce.errors import RequestError
from transduce.frontend.outputs import RequestOutput
from transduce.server.errors import FieldError

Neutral = Mapping[str, tuple[object, ...]]
"""Fields that are not supported, with the values that ask for nothing."""

UNREAD = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "request_id")
"""Fields of any value that change no answer."""

MOST_FIELDS = 200
"""Of an object: each unknown one makes an error."""

NAME = re.compile(r"(?:the |cannot read )?(decoder prompt|\w+)")
"""What an error is about, which its message begins with."""


def _described(schema: dict[str, Any], model: type["Body"]) -> None:
    """Put fields that may be given, but not be used, into the schema."""
    properties = schema.setdefault("properties", {})
    for name in model.unread:
        properties[name] = {"description": "Accepted, without an effect."}
    for name, values in model.neutral.items():
        properties[name] = {"enum": [None, *values], "description": "Not supported: only what asks for nothing."}


class Body(BaseModel):
    """A request. null is the same as leaving a field out.

    unread: names of fields that may have any value, since they change no answer. neutral: names of fields that are not
    supported. Any other field that is not declared is refused. words: what errors call fields, where that is no name.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, json_schema_extra=_described)

    unread: ClassVar[tuple[str, ...]] = ()
    neutral: ClassVar[Neutral] = {}
    words: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _asked(cls, data: Any) -> Any:
        """The fields that ask for something."""
        if not isinstance(data, dict):
            return data
        if len(data) > MOST_FIELDS:
            raise RequestError(f"{len(data):,} fields in one object; give at most {MOST_FIELDS}")
        return {
            name: value
            for name, value in data.items()
            if value is not None and name not in cls.unread and value not in cls.neutral.get(name, ())
        }

    @property
    def renamed(self) -> Mapping[str, str]:
        """Names that parameters have for the engine, to those of the fields that gave them."""
        return {}

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """What the engine refuses is told under the name of the field that gave it."""
        try:
            yield
        except RequestError as error:
            message = str(error)
            for theirs, ours in self.renamed.items():
                message = message.replace(theirs, ours)
            found = NAME.match(message)
            name = found and self.words.get(found[1], found[1])
            if name not in type(self).model_fields:
                raise
            raise FieldError(message, name, type(error)) from error


def described(wanted: str) -> WrapValidator:
    """What to say of a value that has none of a field's types, unless it has one, and its own fault is said."""

    def check(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
        try:
            return inner(value)
        except ValidationError as error:
            for fault in error.errors():
                if isinstance(cause := fault.get("ctx", {}).get("error"), RequestError):
                    raise cause from None
            raise PydanticCustomError("wrong_type", "give {wanted}", {"wanted": wanted}) from None

    return WrapValidator(check)


def at_most(most: int) -> BeforeValidator:
    """Refuse a list or an object of more entries before any is looked at, for which all others would wait."""

    def check(value: Any) -> Any:
        if isinstance(value, list | dict) and len(value) > most:
            given = {"given": f"{len(value):,}", "most": f"{most:,}"}
            raise PydanticCustomError("too_many", "{given} entries; give at most {most}", given)
        return value

    return BeforeValidator(check)


def _characters(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{shown(text)} holds a lone surrogate, which is no character; remove it") from None
    return text


Characters = Annotated[str, AfterValidator(_characters)]
"""Text for the tokenizer, which takes no half of a surrogate pair."""


Priority = Annotated[
    int, Field(ge=-(2**31), lt=2**31, description="Lower ones pass others; only 0 without the server's --priority.")
]

FIRST = Field(fail_fast=True)
"""Of a list: only its first fault is told, so no others are looked for. There may be millions, and all would wait."""

TokenIds = Annotated[list[int], FIRST]


class PromptTokens(TypedDict):
    """Tokens that the encoder read, of an image its rows, and tokens that the decoder started from. truncated: those
    that were cut before.
    """

    encoder_tokens: int
    decoder_tokens: int
    truncated_tokens: int


class Usage(TypedDict):
    """Tokens of all prompts and of all their answers. prompt_tokens: of the encoder and the decoder."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokens


def usage(*outputs: RequestOutput) -> Usage:
    """What the requests used."""
    details = PromptTokens(
        encoder_tokens=sum(output.encoder_rows for output in outputs),
        decoder_tokens=sum(len(output.prompt_token_ids) for output in outputs),
        truncated_tokens=sum(output.truncated for output in outputs),
    )
    prompt = details["encoder_tokens"] + details["decoder_tokens"]
    new = sum(len(answer.token_ids) for output in outputs for answer in output.outputs)
    return Usage(prompt_tokens=prompt, completion_tokens=new, total_tokens=prompt + new, prompt_tokens_details=details)
