"""/v1/realtime: the events of a transcription session, as OpenAI's clients send and read them.

A session is told in the form of `session.update`; what `transcription_session.update` said before it is read as well.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from transduce.core.checks import shown
from transduce.errors import RequestError
from transduce.server.errors import FieldError, Unsupported
from transduce.server.protocol.base import Characters
from transduce.speech.activity import VadOptions

Model = TypeVar("Model", bound="Part")

RATE = 24_000
"""Hz, where a session names no rate."""
LEAST_RATE, MOST_RATE = 8_000, 192_000

LONGEST = 10_000
"""Milliseconds of silence or padding."""

INPUT, TRANSCRIPTION = "input_audio_buffer", "conversation.item.input_audio_transcription"

EARLIER: Mapping[str, tuple[str, ...]] = {
    "input_audio_format": ("format", "type"),
    "input_audio_rate": ("format", "rate"),
    "input_audio_transcription": ("transcription",),
    "input_audio_noise_reduction": ("noise_reduction",),
    "turn_detection": ("turn_detection",),
}
"""Fields of a session in the form of `transcription_session.update`: where they are in audio.input."""
FORMATS = {"pcm16": "audio/pcm"}
"""Their names of formats."""

SWITCHED = frozenset({"turn_detection"})
"""Parts that null switches off."""


class Part(BaseModel):
    """A part of an event. A field that is not declared is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Format(Part):
    """16-bit integers, little endian, one channel."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Annotated[int, Field(ge=LEAST_RATE, le=MOST_RATE)] = RATE


class Transcribing(Part):
    """What to transcribe with. prompt: what was said before, as context of every item."""

    model: str | None = None
    language: str | None = None
    prompt: Characters | None = None


class TurnDetection(Part):
    """When an item ends by itself: with so much silence. threshold: of the probability that somebody speaks.

    create_response, interrupt_response: of no effect, since there are no responses.
    """

    type: Literal["server_vad"] = "server_vad"
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.5
    prefix_padding_ms: Annotated[int, Field(ge=0, le=LONGEST)] = 300
    silence_duration_ms: Annotated[int, Field(ge=32, le=LONGEST)] = 500
    create_response: Annotated[bool | None, Field(exclude=True)] = None
    interrupt_response: Annotated[bool | None, Field(exclude=True)] = None
    idle_timeout_ms: Annotated[None, Field(exclude=True)] = None

    def options(self) -> VadOptions:
        """What counts as speech."""
        pad, silence = self.prefix_padding_ms / 1000, self.silence_duration_ms / 1000
        return VadOptions(threshold=self.threshold, min_silence=silence, speech_pad=pad)


class Input(Part):
    """How audio comes in. turn_detection: None where only the client ends items."""

    format: Format = Field(default_factory=Format)
    transcription: Transcribing = Field(default_factory=Transcribing)
    turn_detection: TurnDetection | None = Field(default_factory=TurnDetection)
    noise_reduction: None = None


class Audio(Part):
    """What a session hears."""

    input: Input = Field(default_factory=Input)


class Session(Part):
    """How a session transcribes."""

    type: Literal["transcription"] = "transcription"
    audio: Audio = Field(default_factory=Audio)
    include: Annotated[list[str], Field(max_length=0)] = Field(default_factory=list, exclude=True)

    def updated(self, given: Mapping[str, Any]) -> "Session":
        """With the fields that are given, in either form. Raises RequestValidationError, or RequestError."""
        return parsed(Session, _merged(self.model_dump(), _today(given)))


class Named(Part):
    """What all events have."""

    model_config = ConfigDict(extra="ignore")

    type: str


class Event(Part):
    """What a client sends. event_id: what an error about it is told with."""

    type: str
    event_id: str | None = None


class Update(Event):
    """session.update, transcription_session.update: fields of the session that change."""

    session: dict[str, Any]


class Append(Event):
    """input_audio_buffer.append: audio in base64. Binary messages are audio as it is."""

    audio: str


class Commit(Event):
    """input_audio_buffer.commit: what was appended is an item."""


class Clear(Event):
    """input_audio_buffer.clear: what was appended since the last item is none."""


EVENTS: Mapping[str, type[Event]] = {
    "session.update": Update,
    "transcription_session.update": Update,
    f"{INPUT}.append": Append,
    f"{INPUT}.commit": Commit,
    f"{INPUT}.clear": Clear,
}


def parsed(model: type[Model], data: object) -> Model:
    """Data as a model. Raises RequestValidationError, of which a fault's place is one dotted name."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", ".".join(map(str, fault["loc"])))} for fault in error.errors()]
        raise RequestValidationError(faults) from error


def event(data: object) -> Event:
    """What a client has sent, of the kind that it names. Raises RequestError, or RequestValidationError."""
    kind = parsed(Named, data).type
    if kind not in EVENTS:
        raise FieldError(f"there is no event {shown(kind)} here; send one of {', '.join(EVENTS)}", "type", Unsupported)
    return parsed(EVENTS[kind], data)


def _today(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A session's fields, all in the form of session.update."""
    earlier = {name: value for name, value in given.items() if name in EARLIER}
    if not earlier:
        return given
    if "audio" in given:
        raise FieldError(f"audio and {', '.join(earlier)} say the same; give one of them", "audio", RequestError)
    heard: dict[str, Any] = {}
    for name, value in earlier.items():
        *outer, last = EARLIER[name]
        place = heard
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = FORMATS.get(value, value) if last == "type" else value
    return {**{name: value for name, value in given.items() if name not in EARLIER}, "audio": {"input": heard}}


def _merged(whole: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`whole`, with what is given in place of its own. null leaves a part as it is, if it is not switched."""
    merged = {**whole}
    for name, value in given.items():
        known = whole.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[name] = _merged(known, value)
        elif not isinstance(known, Mapping) or value is not None or name in SWITCHED:
            merged[name] = value
    return merged
