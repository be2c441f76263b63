"""response_format: OpenAI's way to name the structure of an answer."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from transduce.core.guided import MOST_CHARACTERS
from transduce.server.protocol.base import Body

SPACE = 10
"""As many times the characters of a structure may its text have, which may be indented."""


def _values(value: object) -> Iterator[None]:
    """One for each value in it, however deep."""
    left = [value]
    while left:
        match left.pop():
            case dict() as entries:
                left.extend(entries.values())
            case list() as entries:
                left.extend(entries)
        yield None


def _written(value: Any) -> Any:
    """Refuse what would have too many characters, before the time is spent to write it out."""
    most = MOST_CHARACTERS
    size = len(value) // SPACE if isinstance(value, str) else sum(1 for _ in islice(_values(value), most + 1))
    if size > most:
        raise PydanticCustomError("too_large", "give at most {most} characters", {"most": f"{most:,}"})
    return value


Written = BeforeValidator(_written)
"""Of a structure: it is not much larger than one may be."""


class SchemaFormat(Body):
    """A JSON schema under a name. It is followed exactly, `strict` or not."""

    unread: ClassVar[tuple[str, ...]] = ("description", "name", "strict")

    json_schema: Annotated[dict[str, Any], Written] = Field(alias="schema")


class ResponseFormat(Body):
    """json_object: any JSON object."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise PydanticCustomError(
                "lacking", 'type "json_schema" needs a schema: give json_schema: {"schema": …} too'
            )
        if self.type != "json_schema" and self.json_schema is not None:
            raise PydanticCustomError("disagreeing", 'json_schema goes with type "json_schema", and with no other')
        return self

    @property
    def guided_json(self) -> dict[str, Any] | None:
        """The schema that answers follow; None: text as it comes."""
        if self.type == "json_object":
            return {"type": "object"}
        return None if self.json_schema is None else self.json_schema.json_schema
