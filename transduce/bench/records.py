"""What became of one request: read from the bytes that arrived and when, without a clock.

Owns the forms of answers: completions, chats, and transcriptions as OpenAI and as vLLM stream them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

Arrival = tuple[float, bytes]
"""Seconds on the run's clock, and the bytes that came."""

DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are in seconds on one clock.

    begun: when it was to be sent. ended: when its answer was complete, or had failed. texts: when pieces of the answer
    came, if it was streamed. prompt_tokens, output_tokens: as the server counts them; None: it does not say. error:
    None where there is an answer.
    """

    begun: float
    ended: float
    texts: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    audio_seconds: float = 0.0
    error: str | None = None

    @property
    def e2e(self) -> float:
        """From begin to end."""
        return self.ended - self.begun

    @property
    def ttft(self) -> float | None:
        """To the first text; None where none was streamed."""
        return self.texts[0] - self.begun if self.texts else None

    @property
    def tpot(self) -> float | None:
        """For each token after the first; None where these are not known or none."""
        if not self.texts or self.output_tokens is None or self.output_tokens < 2:
            return None
        return (self.ended - self.texts[0]) / (self.output_tokens - 1)

    @property
    def itls(self) -> list[float]:
        """Between pieces of text."""
        return [later - earlier for earlier, later in pairwise(self.texts)]


def read(begun: float, arrivals: Sequence[Arrival], ended: float, status: int, media_type: str) -> Record:
    """The record of a complete response, streamed or not."""
    failed = Record(begun, ended)
    if status != 200:
        return replace(failed, error=f"HTTP {status}: {_message(_joined(arrivals))}")
    try:
        return _streamed(failed, arrivals) if media_type == "text/event-stream" else _whole(failed, arrivals)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        return replace(failed, error=f"not an answer of OpenAI's form ({error!r}): {_shown(_joined(arrivals))}")


def _whole(record: Record, arrivals: Sequence[Arrival]) -> Record:
    answer = json.loads(_joined(arrivals))
    _text(answer)
    return _counted(record, answer)


def _streamed(record: Record, arrivals: Sequence[Arrival]) -> Record:
    texts: list[float] = []
    finished = False
    for time, content in _events(arrivals):
        event = {} if content == DONE else json.loads(content)
        if event.get("error"):
            return replace(record, error=f"in the stream: {_message(content)}")
        record = _counted(record, event)
        if content == DONE or event.get("type") == "transcript.text.done":
            finished = True
        elif _text(event):
            texts.append(time)
    return replace(record, texts=tuple(texts), error=None if finished else "the stream ended before its end was said")


def _events(arrivals: Sequence[Arrival]) -> Iterator[Arrival]:
    """What each `data:` line holds, as of the arrival that completed it."""
    rest = b""
    for time, content in arrivals:
        *lines, rest = (rest + content).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield time, line.removeprefix(b"data:").strip()


def _text(data: Mapping[str, Any]) -> str:
    """The text of an answer, or of a piece of one; KeyError where the data are no such thing."""
    match data:
        case {"choices": [{"text": text}, *_] | [{"delta": {"content": text}}, *_]}:
            return text or ""
        case {"choices": [{"message": {"content": text}}, *_]}:
            return text or ""
        case {"choices": [{"delta": {}}, *_] | []}:
            return ""
        case {"type": "transcript.text.delta", "delta": text} | {"text": text}:
            return str(text)
        case _:
            raise KeyError("choices, delta or text")


def _counted(record: Record, data: Mapping[str, Any]) -> Record:
    """With the tokens of the usage, where the data have it."""
    usage = data.get("usage")
    if not usage:
        return record
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    return replace(
        record, prompt_tokens=prompt, output_tokens=usage.get("completion_tokens", usage.get("output_tokens"))
    )


def _joined(arrivals: Sequence[Arrival]) -> bytes:
    return b"".join(content for _, content in arrivals)


def _message(content: bytes) -> str:
    """What an error object says, or the content as it is."""
    try:
        return str(json.loads(content)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return _shown(content)


def _shown(content: bytes, most: int = 200) -> str:
    return content[:most].decode(errors="replace")
