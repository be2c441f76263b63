"""/v1/audio/transcriptions and /translations: a clip in a form, what is said in it back."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from fastapi import UploadFile
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from transduce.frontend.outputs import RequestOutput
from transduce.server.protocol.base import Neutral, described
from transduce.server.protocol.sampling import Drawing


class AudioRequest(Drawing):
    """A clip of at most 30 s. Form fields are text, so numbers and booleans are read from it."""

    model_config = ConfigDict(strict=False, arbitrary_types_allowed=True)

    neutral: ClassVar[Neutral] = {"chunking_strategy": (), "include[]": (), "timestamp_granularities[]": ()}
    words: ClassVar[Mapping[str, str]] = {"audio": "file", "decoder prompt": "prompt"}

    file: Annotated[UploadFile, described("a file, with a filename")] = Field(
        description="Audio in any format that FFmpeg reads."
    )
    prompt: str | None = Field(None, description="What was said before, as context.")
    language: str | None = Field(None, description='The speech\'s, such as "en"; left out, it is detected.')
    response_format: Literal["json", "text"] = Field("json", description="srt, vtt and verbose_json are not there yet.")
    max_completion_tokens: int | None = Field(None, ge=1, description="New tokens at most.")
    stream: bool = Field(False, description="Send transcript.text.delta events, and transcript.text.done at last.")

    @property
    def renamed(self) -> Mapping[str, str]:
        return {"max_tokens": "max_completion_tokens"}

    def given(self) -> dict[str, Any]:
        given = super().given()
        if self.max_completion_tokens is not None:
            given["max_tokens"] = self.max_completion_tokens
        return given


class InputTokens(TypedDict):
    """audio_tokens: rows that the encoder made of the clip. text_tokens: tokens that the decoder started from."""

    audio_tokens: int
    text_tokens: int


class AudioUsage(TypedDict):
    """What a transcription took."""

    type: Literal["tokens"]
    input_tokens: int
    input_token_details: InputTokens
    output_tokens: int
    total_tokens: int


class Transcript(TypedDict):
    """What is said in a clip."""

    text: str
    usage: AudioUsage


class TextDelta(TypedDict):
    """What is new of a transcript."""

    type: Literal["transcript.text.delta"]
    delta: str


class TextDone(Transcript):
    """A whole transcript, at the end of a stream."""

    type: Literal["transcript.text.done"]


def usage(output: RequestOutput, rows: int) -> AudioUsage:
    """What a transcription took; rows: the encoder's."""
    start, new = len(output.prompt_token_ids), sum(len(answer.token_ids) for answer in output.outputs)
    return AudioUsage(
        type="tokens",
        input_tokens=rows + start,
        input_token_details=InputTokens(audio_tokens=rows, text_tokens=start),
        output_tokens=new,
        total_tokens=rows + start + new,
    )
