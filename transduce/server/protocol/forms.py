"""What forms, whose fields are text, say of lists, of objects and of voice activity.

Owns the ways to write them: JSON, and names in brackets as OpenAI's client makes them. Knows no request.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

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


def folded(data: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A form in which `name[]` and `name[key]` of some fields are one: texts with commas, or an object."""
    whole: dict[str, Any] = {}
    for field, value in data.items():
        name, bracket, key = field.partition("[")
        if not bracket or name not in names:
            whole[field] = value
        elif key == "]":
            whole[name] = ",".join(map(str, value)) if isinstance(value, list) else value
        else:
            before = whole.get(name)
            whole[name] = {**(before if isinstance(before, dict) else {}), key.removesuffix("]"): value}
    return whole


def voice(name: str, given: str | Mapping[str, Any]) -> VadOptions:
    """What counts as speech, in a field of that name. Raises FieldError."""
    found: dict[str, float] = {}
    for key, value in _object(name, given).items():
        if value is None:
            continue
        if key not in _NAMES:
            raise FieldError(f"{name} has no {key!r}; give some of {', '.join(_NAMES)}", name, RequestError)
        field, unit = _NAMES[key]
        try:
            found[field] = float(value) * unit
        except (TypeError, ValueError, OverflowError):
            raise FieldError(f"{name}: {key} is {value!r}; give a number", name, RequestError) from None
    try:
        return VadOptions(**found)
    except RequestError as error:
        raise FieldError(f"{name}: {error}", name, RequestError) from error


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
        raise FieldError(f"{name}={given!r}: give an object, as JSON", name, RequestError)
    return value
