"""Items as HTTP requests to an OpenAI-compatible server, encoded before the clock runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from transduce.bench.datasets import Clip, Item, Text

COMPLETIONS, TRANSCRIPTIONS = "/v1/completions", "/v1/audio/transcriptions"


@dataclass(frozen=True, slots=True)
class Call:
    """A POST. audio_seconds: of what it holds, 0 for text."""

    path: str
    headers: Mapping[str, str]
    content: bytes
    audio_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Style:
    """What all calls of a run have in common.

    model: its name on the server. stream: whether answers are streamed. extra: further fields of each request.
    endpoint: a path other than the usual one.
    """

    model: str
    stream: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str | None = None

    def call(self, item: Item) -> Call:
        """The item's request."""
        return self._completion(item) if isinstance(item, Text) else self._transcription(item)

    def _completion(self, item: Text) -> Call:
        streaming = {"stream": True, "stream_options": {"include_usage": True}} if self.stream else {}
        body = {"model": self.model, "prompt": item.prompt, **streaming, **item.fields, **self.extra}
        return Call(self.endpoint or COMPLETIONS, {"content-type": "application/json"}, json.dumps(body).encode())

    def _transcription(self, item: Clip) -> Call:
        streaming = {"stream": "true"} if self.stream else {}
        fields = {"model": self.model, "response_format": "json", **streaming, **self.extra}
        form = httpx.Request("POST", "http://unused", data=fields, files={"file": (item.name, item.content)})
        kind = {"content-type": form.headers["content-type"]}
        return Call(self.endpoint or TRANSCRIPTIONS, kind, form.read(), item.seconds)
