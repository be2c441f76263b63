"""/v1/audio/transcriptions and /translations: a recording in a form, what is said in it back."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

from fastapi import UploadFile
from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from transduce.errors import RequestError
from transduce.frontend.outputs import RequestOutput
from transduce.server.errors import FieldError, Unsupported
from transduce.server.protocol.base import Neutral, described
from transduce.server.protocol.sampling import Drawing
from transduce.speech.fallback import Fallback
from transduce.speech.subtitles import Layout

GRANULARITIES = "timestamp_granularities[]"

_TIMED = ("srt", "vtt", "verbose_json")
_THRESHOLDS = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
_LAYOUT = ("max_line_width", "max_line_count")


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
    condition_on_previous_text: bool = Field(True, description="Tell each window of long audio the text before it.")
    vad_filter: bool = Field(False, description="Hear speech alone, cut at silences into windows side by side.")
    chunking_strategy: Literal["auto"] | None = Field(None, description="OpenAI's name for a vad_filter.")
    compression_ratio_threshold: float | None = Field(None, description="Decode text again that compresses by more.")
    logprob_threshold: float | None = Field(None, description="Decode text again that is less likely, by its mean.")
    no_speech_threshold: float | None = Field(None, description="Unlikely text is none where silence is likelier.")
    hallucination_silence_threshold: float | None = Field(
        None, ge=0, description="Drop what seems made up beside so many seconds of silence."
    )
    max_line_width: int | None = Field(None, ge=1, description="Characters of a line of srt and vtt.")
    max_line_count: int | None = Field(None, ge=1, description="Lines of a cue of srt and vtt.")
    stream: bool = Field(False, description="Send transcript.text.delta events, and transcript.text.done at last.")

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
        return self

    @property
    def timed(self) -> bool:
        """Whether the answer says when what is spoken."""
        return self.response_format in _TIMED

    @property
    def renamed(self) -> Mapping[str, str]:
        voice = {"vad_filter": "chunking_strategy"} if self.chunking_strategy else {}
        return {"max_tokens": "max_completion_tokens", "word_timestamps": GRANULARITIES, **voice}

    def given(self) -> dict[str, Any]:
        given = super().given()
        if self.max_completion_tokens is not None:
            given["max_tokens"] = self.max_completion_tokens
        if self.temperature == 0:
            del given["temperature"]  # the first of the fallback's
        return given

    def hearing(self) -> dict[str, Any]:
        """The arguments of AsyncLLM.transcribe but the recording, task and timestamps. Raises RequestError."""
        silence = self.hallucination_silence_threshold
        return {
            "language": self.language,
            "prompt": self.prompt,
            "condition_on_previous_text": self.condition_on_previous_text,
            "fallback": self._fallback(),
            "word_timestamps": "word" in self.timestamp_granularities or silence is not None,
            "hallucination_silence_threshold": silence,
            "vad_filter": self.vad_filter or self.chunking_strategy == "auto",
            "sampling_params": self.params(),
        }

    def layout(self) -> Layout:
        """Of subtitles. Raises RequestError for limits that do not work together."""
        return Layout(**{name: getattr(self, name) for name in _LAYOUT})

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
    """A stretch of speech, in seconds from the beginning; null: the model does not say."""

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


class SpokenWord(TypedDict):
    """A word, in seconds from the beginning. probability: 0 to 1."""

    word: str
    start: float
    end: float
    probability: float


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
