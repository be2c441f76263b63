"""An AsyncLLM without an engine: it answers as told, and remembers what it was asked."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI

from transduce.async_engine.llm import AsyncLLM
from transduce.async_engine.stats import Stats
from transduce.config import EngineConfig
from transduce.frontend.outputs import CompletionOutput, RequestMetrics, RequestOutput
from transduce.frontend.readers import Readers
from transduce.models.base import Processor
from transduce.server.app import create_app
from transduce.server.options import ServeOptions
from transduce.server.service import Service
from transduce.speech.transcription import Transcription

MODEL = "./a-model"


class FakeLLM:
    """generate gives "a" and, once `go` is set, "ab" as the finished answer of 3 tokens; or raises `error`."""

    def __init__(self, media: str | None = None, language: str | None = None) -> None:
        self.state = "ready"
        self.live = self.waiting = 0
        self.stats = Stats()
        self.config = EngineConfig(model=MODEL, max_model_len=64)
        self.frontend = SimpleNamespace(
            config=self.config,
            spec=SimpleNamespace(fixed_rows=50),
            processor=SimpleNamespace(media=media, language=language, interleaved=media == "image", tokenizer=None),
            resolver=SimpleNamespace(answers=lambda params: 1, width=lambda params: 1),
        )
        self.frontend.readers = Readers(cast(Processor, self.frontend.processor))
        self.frontend.lock = self.frontend.readers.lock
        self.on_step: Callable[[float], None] | None = None
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None
        self.asked: list[Mapping[str, Any]] = []
        self.entered = asyncio.Event()
        self.left = 0
        self.queued = 0.5

    def waiting_before(self, priority: int) -> int:
        return self.waiting

    async def generate(self, prompt: object, params: object, **given: Any) -> AsyncGenerator[RequestOutput, None]:
        self.asked.append({"prompt": prompt, "params": params, **given})
        self.live += 1
        try:
            if self.error is not None:
                raise self.error
            if given["stream"]:
                yield output("a", 1, finished=False, queued=self.queued)
            self.entered.set()
            await self.go.wait()
            yield output("ab", 3, finished=True, queued=self.queued)
        finally:
            self.live -= 1
            self.left += 1

    async def transcribe(self, *given: Any, **options: Any) -> Transcription:
        self.asked.append({"given": given, **options})
        return Transcription("ab", "en", output("ab", 3, finished=True, queued=self.queued), duration=0.5)

    async def start(self) -> None:
        self.state = "ready"

    async def shutdown(self) -> None:
        self.state = "stopped"


def output(text: str, tokens: int, *, finished: bool, queued: float = 0.5) -> RequestOutput:
    """Scheduled `queued` seconds after its arrival, with a first token after 1 s and the last after 3 s."""
    answer = CompletionOutput(0, text, [7] * tokens, finish_reason="stop" if finished else None)
    times = RequestMetrics(100.0, 100.0 + queued, 101.0, 103.0 if finished else None)
    return RequestOutput("1", "x y", [4, 5, 2], None, [2], [answer], finished, times, encoder_rows=3)


def service(llm: FakeLLM | None = None, **options: Any) -> Service:
    return Service(cast(AsyncLLM, llm or FakeLLM()), ServeOptions(**options))


def app(llm: FakeLLM | None = None, **options: Any) -> FastAPI:
    return create_app(service(llm, **options))
