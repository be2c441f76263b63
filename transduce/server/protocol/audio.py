"""/v1/audio/transcriptions and /translations: a recording in a form, what is said in it back."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

from fastapi import UploadFile
from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from transduce.core.params import NUMBERS
from transduce.errors import RequestError
from transduce.frontend.outputs import RequestOutput
from transduce.server.errors import FieldError, Unsupported
from transduce.server.protocol.base import Neutral, described
from transduce.server.protocol.forms import folded, strategy, voice
from transduce.server.protocol.sampling import Drawing
from transduce.speech.activity import VadOptions
from transduce.speech.asked import Options
from transduce.speech.fallback import Fallback
from transduce.speech.subtitles import Layout

GRANULARITIES = "timestamp_granularities[]"

_TIMED = ("srt", "vtt", "verbose_json")
_THRESHOLDS = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
_LAYOUT = ("max_line_width", "max_line_count")
_VOICE = ("vad_parameters", "chunking_strategy")
_BRACKETED = ("suppress_tokens", "clip_timestamps", *_VOICE)
_LISTS = ("timestamp_granularities",)
_ASKED = frozenset({"language", "prompt", *Options.__annotations__})
"""What is asked of a transcription under the name of a field."""

BEAMS = 5
"""Of use_beam_search, as openai/whisper has them."""


class AudioRequest(Drawing):
    """A recording of any length. Form fields are text, so numbers and booleans are read from it."""

    model_config = ConfigDict(strict=False, arbitrary_types_allowed=True)

    neutral: ClassVar[Neutral] = {"include[]": ()}
    words: ClassVar[Mapping[str, str]] = {"audio": "file", "decoder prompt": "prompt"}

    file: Annotated[UploadFile, described("a file, with a filename")] = Field(
        description="Audio in any format that FFmpeg reads."
    )
    prompt: str | None = Field(None, description="What was said before, as context.")
    language: str | None = Field(None, description='The speech\'s, such as "en"; left out, it is detected.')
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] = "json"
    timestamp_granularities: list[Literal["segment", "word"]] = Field(
        ["segment"],
        alias="timestamp_granularities[]",
        description="What verbose_json lists; word: cut srt and vtt by words' times.",
    )
    max_completion_tokens: int | None = Field(None, ge=1, description="New tokens of a window of 30 s at most.")
    prefix: str | None = Field(None, description="What the text begins with; not with vad_filter.")
    hotwords: str | None = Field(None, description="Words that may be spoken, told to each window without a prefix.")
    clip_timestamps: str | None = Field(
        None, description="Seconds start,end,start,end…: only these parts are heard; the last end may be left out."
    )
    suppress_tokens: str | None = Field(
        None, description="Token ids, with commas, that are never generated; -1: the checkpoint's."
    )
    beam_size: int | None = Field(None, ge=1, description="Beams at temperature 0.")
    best_of: int | None = Field(None, ge=1, description="Samples at other temperatures; the likeliest counts.")
    patience: float | None = Field(
        None, gt=0, le=NUMBERS["patience"].high, description="Search until so many times beam_size beams have ended."
    )
    use_beam_search: bool | None = Field(
        None, description=f"true: {BEAMS} beams, where beam_size is left out; false: none."
    )
    channels: Literal["mix", "separate"] = Field(
        "mix", description="separate: hear each channel by itself, and say which one segments are of."
    )
    condition_on_previous_text: bool = Field(True, description="Tell each window of long audio the text before it.")
    vad_filter: bool = Field(False, description="Hear speech alone, cut at silences into windows side by side.")
    vad_parameters: str | dict[str, Any] | None = Field(
        None, description="A vad_filter's options as a JSON object, such as threshold, min_silence and speech_pad."
    )
    chunking_strategy: str | dict[str, Any] | None = Field(
        None, description="OpenAI's name for a vad_filter: auto, or an object of type server_vad with its options."
    )
    compression_ratio_threshold: float | None = Field(None, description="Decode text again that compresses by more.")
    logprob_threshold: float | None = Field(None, description="Decode text again that is less likely, by its mean.")
    no_speech_threshold: float | None = Field(None, description="Unlikely text is none where silence is likelier.")
    hallucination_silence_threshold: float | None = Field(
        None, ge=0, description="Drop what seems made up beside so many seconds of silence."
    )
    max_line_width: int | None = Field(None, ge=1, description="Characters of a line of srt and vtt.")
    max_line_count: int | None = Field(None, ge=1, description="Lines of a cue of srt and vtt.")
    stream: bool = Field(False, description="Send transcript.text.delta events, and transcript.text.done at last.")

    @model_validator(mode="before")
    @classmethod
    def _folded(cls, data: Any) -> Any:
        return folded(data, _BRACKETED, _LISTS) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _together(self) -> Self:
        form = self.response_format
        if self.stream and self.timed:
            raise Unsupported(
                f"response_format={form!r} in a stream is not supported; leave out stream", "response_format"
            )
        if "timestamp_granularities" in self.model_fields_set and not self.timed:
            message = f"{GRANULARITIES} is for response_format={', '.join(_TIMED)}; leave it out"
            raise FieldError(message, GRANULARITIES, RequestError)
        for name in _LAYOUT:
            if getattr(self, name) is not None and form not in ("srt", "vtt"):
                raise FieldError(f"{name} is for response_format=srt and vtt; leave it out", name, RequestError)
        if self.use_beam_search is False and (width := self.beam_size or 1) > 1:
            message = f"use_beam_search=False beside beam_size={width}; leave one of them out"
            raise FieldError(message, "use_beam_search", RequestError)
        return self

    @model_validator(mode="after")
    def _one_voice(self) -> Self:
        given = [name for name in _VOICE if getattr(self, name) is not None]
        if len(given) > 1:
            message = "vad_parameters beside chunking_strategy, which has options too; give one of them"
            raise FieldError(message, "vad_parameters", RequestError)
        if given and "vad_filter" in self.model_fields_set and not self.vad_filter:
            message = f"vad_filter=False beside {given[0]}, which asks for one; leave one of them out"
            raise FieldError(message, "vad_filter", RequestError)
        return self

    @property
    def timed(self) -> bool:
        """Whether the answer says when what is spoken."""
        return self.response_format in _TIMED

    @property
    def renamed(self) -> Mapping[str, str]:
        voice = next((name for name in _VOICE if getattr(self, name) is not None), "vad_filter")
        return {"max_tokens": "max_completion_tokens", "word_timestamps": GRANULARITIES, "vad_filter": voice}

    def given(self) -> dict[str, Any]:
        given = super().given()
        if self.max_completion_tokens is not None:
            given["max_tokens"] = self.max_completion_tokens
        if self.temperature == 0:
            del given["temperature"]  # the first of the fallback's
        return {name: value for name, value in given.items() if name not in _ASKED}

    def hearing(self) -> dict[str, Any]:
        """The arguments of AsyncLLM.transcribe but the recording, task and timestamps. Raises RequestError."""
        silence = self.hallucination_silence_threshold
        return {
            **{name: getattr(self, name) for name in _ASKED & type(self).model_fields.keys()},
            "beam_size": self._beams(),
            "fallback": self._fallback(),
            "word_timestamps": "word" in self.timestamp_granularities or silence is not None,
            "vad_filter": self._voice(),
            "sampling_params": self.params(),
            "priority": self.priority,
        }

    def layout(self) -> Layout:
        """Of subtitles. Raises RequestError for limits that do not work together."""
        return Layout(**{name: getattr(self, name) for name in _LAYOUT})

    def _voice(self) -> bool | VadOptions:
        vad, chunking = self.vad_parameters, self.chunking_strategy
        if vad is not None:
            return voice("vad_parameters", vad)
        return self.vad_filter if chunking is None else strategy("chunking_strategy", chunking)

    def _beams(self) -> int | None:
        if self.use_beam_search is None:
            return self.beam_size
        return self.beam_size or (BEAMS if self.use_beam_search else 1)

    def _fallback(self) -> Fallback | None:
        """At temperature 0 as OpenAI has it, and where a threshold is asked for; else as the engine decides."""
        given = {name: value for name in _THRESHOLDS if (value := getattr(self, name)) is not None}
        return Fallback(**given) if given or self.temperature == 0 else None


class InputTokens(TypedDict):
    """audio_tokens: rows that the encoder made of the audio. text_tokens: that the decoder started from at first."""

    audio_tokens: int
    text_tokens: int


class AudioUsage(TypedDict):
    """What a transcription took."""

    type: Literal["tokens"]
    input_tokens: int
    input_token_details: InputTokens
    output_tokens: int
    total_tokens: int


class AudioLength(TypedDict):
    """What a transcription took, in seconds of audio."""

    type: Literal["duration"]
    seconds: float


class Transcript(TypedDict):
    """What is said in a recording."""

    text: str
    usage: AudioUsage


class SpokenSegment(TypedDict):
    """A stretch of speech, in seconds from the beginning; null: the model does not say. channel: heard by itself."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float | None
    compression_ratio: float
    no_speech_prob: float | None
    channel: NotRequired[int]


class SpokenWord(TypedDict):
    """A word, in seconds from the beginning. probability: 0 to 1."""

    word: str
    start: float
    end: float
    probability: float
    channel: NotRequired[int]


class VerboseTranscript(TypedDict):
    """What is said in a recording, and when. language_probability: of a detected one."""

    task: Literal["transcribe", "translate"]
    language: str | None
    duration: float
    text: str
    segments: NotRequired[list[SpokenSegment]]
    words: NotRequired[list[SpokenWord]]
    language_probability: float | None
    usage: AudioLength


class TextDelta(TypedDict):
    """What is new of a transcript."""

    type: Literal["transcript.text.delta"]
    delta: str


class TextDone(Transcript):
    """A whole transcript, at the end of a stream."""

    type: Literal["transcript.text.done"]


def usage(output: RequestOutput) -> AudioUsage:
    """What a transcription took."""
    rows, start = output.encoder_rows, len(output.prompt_token_ids)
    new = sum(len(answer.token_ids) for answer in output.outputs)
    return AudioUsage(
        type="tokens",
        input_tokens=rows + start,
        input_token_details=InputTokens(audio_tokens=rows, text_tokens=start),
        output_tokens=new,
        total_tokens=rows + start + new,
    )
