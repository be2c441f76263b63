"""response_format: OpenAI's way to name the structure of an answer."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from transduce.server.protocol.base import Body


class SchemaFormat(Body):
    """A JSON schema under a name. It is followed exactly, `strict` or not."""

    unread: ClassVar[tuple[str, ...]] = ("description", "name", "strict")

    json_schema: dict[str, Any] = Field(alias="schema")


class ResponseFormat(Body):
    """json_object: any JSON object."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise PydanticCustomError("disagreeing", 'json_schema goes with type "json_schema", and with no other')
        return self

    @property
    def guided_json(self) -> dict[str, Any] | None:
        """The schema that answers follow; None: text as it comes."""
        if self.type == "json_object":
            return {"type": "object"}
        return None if self.json_schema is None else self.json_schema.json_schema
