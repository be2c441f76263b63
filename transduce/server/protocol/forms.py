"""What forms, whose fields are text, say of lists, of objects and of voice activity.

Owns the ways to write them: JSON, and names in brackets as OpenAI's client makes them. Knows no request.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from transduce.core.checks import shown
from transduce.errors import RequestError
from transduce.server.errors import FieldError
from transduce.speech.activity import VadOptions

SECOND, MILLISECOND = 1.0, 0.001

_NAMES: Mapping[str, tuple[str, float]] = {
    "min_speech_duration_ms": ("min_speech", MILLISECOND),
    "min_silence_duration_ms": ("min_silence", MILLISECOND),
    "silence_duration_ms": ("min_silence", MILLISECOND),
    "speech_pad_ms": ("speech_pad", MILLISECOND),
    "prefix_padding_ms": ("speech_pad", MILLISECOND),
    "max_speech_duration_s": ("max_speech", SECOND),
    **{field.name: (field.name, SECOND) for field in fields(VadOptions)},
}
"""Of VadOptions, and in faster-whisper and OpenAI's chunking_strategy: the field that is meant, and its unit."""


def folded(data: Mapping[str, Any], names: Collection[str], lists: Collection[str]) -> dict[str, Any]:
    """A form in which `name[]` and `name[key]` of some fields are one: texts with commas, or an object.

    lists: fields that are to be `name[]`, and may be written without the brackets. Raises FieldError for a field that
    is there in two ways.
    """
    whole: dict[str, Any] = {}
    for field, value in data.items():
        name, given = _whole(field, value, names, lists)
        before = whole.get(name)
        if isinstance(before, dict) and isinstance(given, dict):
            whole[name] = {**before, **given}
        elif before is None:
            whole[name] = given
        elif given is not None:
            raise FieldError(f"{name} is given in two ways, of which {field} is one; give it once", name, RequestError)
    return whole


def _whole(field: str, value: Any, names: Collection[str], lists: Collection[str]) -> tuple[str, Any]:
    """The field that is meant, and what it says. null, as JSON has it, is nothing, and so is an empty text."""
    name, bracket, key = field.partition("[")
    if name in lists and key in ("", "]"):
        return f"{name}[]", (value if isinstance(value, list) else [value]) if value else None
    if name not in names:
        return field, value
    if not bracket:
        return name, None if value == "null" else value
    if key == "]":
        return name, ",".join(map(str, value)) if isinstance(value, list) else value
    return name, {key.removesuffix("]"): value}


def voice(name: str, given: str | Mapping[str, Any]) -> VadOptions:
    """What counts as speech, in a field of that name. Raises FieldError."""
    found: dict[str, float] = {}
    said: dict[str, str] = {}
    for key, value in _object(name, given).items():
        if value is None:
            continue
        if key not in _NAMES:
            raise FieldError(f"{name} has no {shown(key)}; give some of {', '.join(_NAMES)}", name, RequestError)
        field, unit = _NAMES[key]
        if (other := said.setdefault(field, key)) != key:
            raise FieldError(f"{name}: {key} beside {other}, which is the same; give one of them", name, RequestError)
        found[field] = _number(name, key, value) * unit
    try:
        return VadOptions(**found)
    except RequestError as error:
        raise FieldError(f"{name}: {error}", name, RequestError) from error


def _number(name: str, key: str, value: Any) -> float:
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise FieldError(f"{name}: {key} is {shown(value)}; give a number", name, RequestError)


def strategy(name: str, given: str | Mapping[str, Any]) -> bool | VadOptions:
    """OpenAI's chunking_strategy: "auto", or an object of type "server_vad". Raises FieldError."""
    if given == "auto":
        return True
    asked = dict(_object(name, given))
    if asked.pop("type", None) != "server_vad":
        raise FieldError(f"{name}: give auto, or an object of type server_vad", name, RequestError)
    return voice(name, asked)


def _object(name: str, given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping):
        raise FieldError(f"{name}={shown(given)}: give an object, as JSON", name, RequestError)
    return value
