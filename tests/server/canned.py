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
from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from transduce.media.audio import decode
from transduce.server.page import router
from transduce.server.sockets import Sockets


@dataclass
class Canned:
    """words: the answer, a delta each; it waits before word `pause` until `release`. left: a client did not wait.
    written: a transcript that is not streamed.

    refusal: the status, message and headers that every answer is refused with. key: what /v1 asks for.
    broken: the answer ends with an error. loading: there is no model yet. gauges: what /metrics says; growth: tokens
    generated between two readings.
    """

    name: str = "tiny"
    tasks: tuple[str, ...] = ("generate",)
    modalities: tuple[str, ...] = ("text",)
    words: tuple[str, ...] = ("Der ", "Wal ", "singt.")
    pause: int | None = None
    written: str = "1\n00:00:00,000 --> 00:00:01,000\nDer Wal singt.\n"
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
        about = {"tasks": canned.tasks, "input_modalities": canned.modalities}
        return {"object": "list", "data": [{"id": canned.name, "object": "model", **about}]}

    @server.get("/metrics")
    async def metrics() -> Response:
        canned.gauges["generation_tokens_total"] = canned.gauges.get("generation_tokens_total", 0) + canned.growth
        return PlainTextResponse("".join(f"transduce:{name} {value}\n" for name, value in canned.gauges.items()))

    @server.post("/v1/completions")
    @server.post("/v1/chat/completions")
    async def completions(request: Request) -> Response:
        canned.received.append(asked := await request.json())
        events = {True: chat_events, False: completion_events}["messages" in asked]
        return refused(*canned.refusal) if canned.refusal else stream(events(canned))

    @server.post("/v1/audio/{task}")
    async def audio(task: str, request: Request) -> Response:
        async with request.form() as form:
            fields = {name: value for name, value in form.items() if isinstance(value, str)}
            upload = form["file"]
            assert not isinstance(upload, str)
            seconds = len(decode(await upload.read(), 16_000)) / 16_000
        canned.received.append({"route": task, "seconds": seconds, "name": upload.filename, **fields})
        if canned.refusal:
            return refused(*canned.refusal)
        return stream(transcript_events(canned)) if "stream" in fields else PlainTextResponse(canned.written)

    @server.websocket("/v1/realtime")
    async def realtime(socket: WebSocket) -> None:
        await socket.accept("realtime")
        await hear(socket, canned)

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


async def chat_events(canned: Canned) -> AsyncIterator[Any]:
    async for word in canned.deltas():
        yield {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}], "usage": None}
    yield {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": len(canned.words)}}
    yield "[DONE]"


async def transcript_events(canned: Canned) -> AsyncIterator[Any]:
    async for word in canned.deltas():
        yield {"type": "transcript.text.delta", "delta": word}
    usage = {"type": "tokens", "input_tokens": 1500, "output_tokens": len(canned.words)}
    yield {"type": "transcript.text.done", "text": "".join(canned.words), "usage": usage}
    yield "[DONE]"


async def hear(socket: WebSocket, canned: Canned) -> None:
    """Two words stay once there is sound, the third when it is committed."""
    item = {"item_id": "one", "content_index": 0}
    told = "conversation.item.input_audio_transcription"
    canned.received.append(await socket.receive_json())
    samples = 0
    while data := (message := await socket.receive()).get("bytes"):
        if not samples:
            await socket.send_json({"type": f"{told}.delta", "delta": "Der Wal", **item})
            await socket.send_json({"type": f"{told}.partial", "partial": "sinkt", **item})
        samples += len(data) // 2
    canned.received.append({**json.loads(message["text"]), "samples": samples})
    await socket.send_json({"type": "input_audio_buffer.committed", "previous_item_id": None, **item})
    await socket.send_json({"type": f"{told}.completed", "transcript": "Der Wal singt.", **item})


@contextmanager
def serving(server: FastAPI) -> Iterator[str]:
    """The address of the app, served by uvicorn in a thread until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(server, log_level="warning", ws=Sockets, timeout_graceful_shutdown=1)
        runner = uvicorn.Server(config)
        thread = Thread(target=runner.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            runner.should_exit = True
            thread.join()
