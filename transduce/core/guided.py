"""Guided: the one structure that an answer must have, as a user names it, in text.

Owns which of the ways to name it was used, and what is wrong with its value by itself. Knows no tokenizer: whether a
vocabulary can spell it is the frontend's to say.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transduce.errors import RequestError

Kind = Literal["json", "regex", "choice", "grammar"]

MOST_CHARACTERS = 40_000
"""Of a structure, written out: as many take 0.1 s to compile."""


@dataclass(frozen=True, slots=True)
class Guided:
    """text: the JSON schema, the regular expression, the JSON list of choices, or the Lark grammar."""

    kind: Kind
    text: str


def guided(schema: Any, regex: Any, choice: Any, grammar: Any) -> Guided | None:
    """The structure that one of these describes; None where none is given. Raises RequestError."""
    given: tuple[tuple[Kind, Any, Callable[[str, Any], str]], ...] = (
        ("json", schema, _schema),
        ("regex", regex, _text),
        ("choice", choice, _choice),
        ("grammar", grammar, _text),
    )
    asked = [Guided(kind, written(f"guided_{kind}", value)) for kind, value, written in given if value is not None]
    if len(asked) > 1:
        names = " and ".join(f"guided_{each.kind}" for each in asked)
        raise RequestError(f"{names}: an answer has one structure; give one of them")
    for each in asked:
        if len(each.text) > MOST_CHARACTERS:
            raise RequestError(f"guided_{each.kind} has {len(each.text)} characters; give at most {MOST_CHARACTERS}")
    return asked[0] if asked else None


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise RequestError(f"{name}={value!r}: give a text that is not empty")
    return value


def _choice(name: str, value: Any) -> str:
    listed = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    if not listed or not value or not all(isinstance(each, str) and each for each in value):
        raise RequestError(f"{name}={value!r}: give a list of texts, at least one, none empty")
    return json.dumps(list(value), ensure_ascii=False)


def _schema(name: str, value: Any) -> str:
    try:
        schema = json.loads(value) if isinstance(value, str) else _from_model(value)
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{name} is no JSON ({error}); give a schema, as a dict or as text") from None
    if not isinstance(schema, dict):
        raise RequestError(f"{name}={value!r}: give a JSON schema, an object")
    return text


def _from_model(value: Any) -> Any:
    """The schema of a pydantic model; anything else as it is."""
    if not isinstance(value, type):
        return value
    from pydantic import BaseModel

    return value.model_json_schema() if issubclass(value, BaseModel) else value
