"""Talking to an ASGI application over a WebSocket as a server does, message by message, in the test's event loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

PATIENCE = 30
"""Seconds after which something hangs."""


@dataclass(slots=True)
class Socket:
    """A client's side of one socket. opening: the first message of the application, which lets it in or does not."""

    opening: Message = field(default_factory=dict)
    said: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    heard: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)

    def send(self, kind: str, **fields: Any) -> None:
        self.text(json.dumps({"type": kind, **fields}))

    def text(self, text: str) -> None:
        self.said.put_nowait({"type": "websocket.receive", "text": text})

    def data(self, data: bytes) -> None:
        self.said.put_nowait({"type": "websocket.receive", "bytes": data})

    def leave(self) -> None:
        self.said.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def message(self) -> Message:
        async with asyncio.timeout(PATIENCE):
            return await self.heard.get()

    async def event(self, *kinds: str) -> dict[str, Any]:
        """The next event; with kinds, the next of these."""
        while True:
            message = await self.message()
            assert message["type"] == "websocket.send", message
            event: dict[str, Any] = json.loads(message["text"])
            if not kinds or event["type"].rpartition(".")[2] in kinds:
                return event

    @property
    def status(self) -> int:
        return int(self.opening.get("status", 101))

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.opening["headers"]}


@asynccontextmanager
async def opened(
    app: ASGIApp, path: str, headers: dict[str, str] | None = None, subprotocols: Sequence[str] = (), query: str = ""
) -> AsyncIterator[Socket]:
    """A socket, let in or not; in the end the client leaves, and the application is done."""
    socket = Socket()
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in {"host": "test", **(headers or {})}.items()],
        "client": ("192.0.2.1", 1234),
        "server": ("test", 80),
        "subprotocols": [*subprotocols],
        "state": {},
        "extensions": {"websocket.http.response": {}},
    }
    socket.said.put_nowait({"type": "websocket.connect"})
    running = asyncio.create_task(_run(app, scope, socket))
    socket.opening = await socket.message()
    try:
        yield socket
    finally:
        socket.leave()
        async with asyncio.timeout(PATIENCE):
            await running


async def _run(app: ASGIApp, scope: dict[str, Any], socket: Socket) -> None:
    async def send(message: Message) -> None:
        socket.heard.put_nowait(message)

    await app(scope, socket.said.get, send)
