"""A server with the page, and answers that are written beforehand: tests steer it, and read what reached it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from transduce.media.audio import decode
from transduce.server.page import router


@dataclass
class Canned:
    """words: the answer, a delta each; it waits before word `pause` until `release`. left: a client did not wait.

    refusal: the status, message and headers that every answer is refused with. key: what /v1 asks for.
    broken: the answer ends with an error. loading: there is no model yet. gauges: what /metrics says; growth: tokens
    generated between two readings.
    """

    name: str = "tiny"
    tasks: tuple[str, ...] = ("generate",)
    words: tuple[str, ...] = ("Der ", "Wal ", "singt.")
    pause: int | None = None
    refusal: tuple[int, str, dict[str, str]] | None = None
    key: str | None = None
    broken: bool = False
    loading: bool = False
    gauges: dict[str, float] = field(default_factory=dict)
    growth: float = 0
    received: list[dict[str, Any]] = field(default_factory=list)
    left: Event = field(default_factory=Event)
    _go: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    def release(self) -> None:
        assert self._loop is not None, "nothing waits yet"
        self._loop.call_soon_threadsafe(self._go.set)

    async def deltas(self) -> AsyncIterator[str]:
        self._loop = asyncio.get_running_loop()
        try:
            for index, word in enumerate(self.words):
                if index == self.pause:
                    await self._go.wait()
                yield word
        except asyncio.CancelledError:
            self.left.set()
            raise


def app(canned: Canned) -> FastAPI:
    """The routes that the page asks, answering as `canned` says."""
    server = FastAPI(openapi_url=None)
    server.include_router(router)

    @server.middleware("http")
    async def guard(request: Request, call_next: Any) -> Any:
        asked = f"Bearer {canned.key}"
        if canned.key and request.url.path.startswith("/v1/") and request.headers.get("authorization") != asked:
            return refused(401, "Incorrect API key provided.")
        return await call_next(request)

    @server.get("/v1/models")
    async def models() -> Any:
        if canned.loading:
            return refused(503, "The model is loading.")
        return {"object": "list", "data": [{"id": canned.name, "object": "model", "tasks": canned.tasks}]}

    @server.get("/metrics")
    async def metrics() -> Response:
        canned.gauges["generation_tokens_total"] = canned.gauges.get("generation_tokens_total", 0) + canned.growth
        return PlainTextResponse("".join(f"transduce:{name} {value}\n" for name, value in canned.gauges.items()))

    @server.post("/v1/completions")
    async def completions(request: Request) -> Response:
        canned.received.append(await request.json())
        return refused(*canned.refusal) if canned.refusal else stream(completion_events(canned))

    @server.post("/v1/audio/{task}")
    async def audio(task: str, request: Request) -> Response:
        async with request.form() as form:
            fields = {name: value for name, value in form.items() if isinstance(value, str)}
            upload = form["file"]
            assert not isinstance(upload, str)
            seconds = len(decode(await upload.read(), 16_000)) / 16_000
        canned.received.append({"route": task, "seconds": seconds, "name": upload.filename, **fields})
        return refused(*canned.refusal) if canned.refusal else stream(transcript_events(canned))

    return server


def refused(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers)


def stream(events: AsyncIterator[Any]) -> Response:
    async def lines() -> AsyncIterator[str]:
        async for event in events:
            yield f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


async def completion_events(canned: Canned) -> AsyncIterator[Any]:
    async for word in canned.deltas():
        yield {"choices": [{"index": 0, "text": word, "finish_reason": None}], "usage": None}
    if canned.broken:
        yield {"error": {"message": "The engine process ended.", "type": "server_error", "code": "engine_unavailable"}}
        return
    yield {"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": None}
    yield {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": len(canned.words)}}
    yield "[DONE]"


async def transcript_events(canned: Canned) -> AsyncIterator[Any]:
    async for word in canned.deltas():
        yield {"type": "transcript.text.delta", "delta": word}
    usage = {"type": "tokens", "input_tokens": 1500, "output_tokens": len(canned.words)}
    yield {"type": "transcript.text.done", "text": "".join(canned.words), "usage": usage}
    yield "[DONE]"


@contextmanager
def serving(server: FastAPI) -> Iterator[str]:
    """The address of the app, served by uvicorn in a thread until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(server, log_level="warning", ws="none", timeout_graceful_shutdown=1)
        runner = uvicorn.Server(config)
        thread = Thread(target=runner.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            runner.should_exit = True
            thread.join()
