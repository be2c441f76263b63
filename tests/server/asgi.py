"""Talking to an ASGI application as a server does, one request at a time and message by message."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

Headers = Mapping[str, str]


@dataclass(slots=True)
class Client:
    """A client's side of one request. leave(): it closes its connection. started: the response has begun."""

    app: ASGIApp
    chunks: list[bytes]
    read: int = 0
    messages: list[Message] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    complete: bool = False

    def leave(self) -> None:
        self.gone.set()

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"]) if self.messages else 0

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def receive(self) -> Message:
        if self.read < len(self.chunks):
            self.read += 1
            return {
                "type": "http.request",
                "body": self.chunks[self.read - 1],
                "more_body": self.read < len(self.chunks),
            }
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        assert not self.complete, "a message after the last one"
        self.messages.append(message)
        self.started.set()
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.complete = True
            self.gone.set()  # as uvicorn does

    async def run(self, method: str, path: str, headers: Headers) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("192.0.2.1", 1234),
            "server": ("test", 80),
            "state": {},
        }
        await self.app(scope, self.receive, self.send)


def call(
    app: ASGIApp, method: str, path: str, body: Any = None, headers: Headers | None = None, chunks: Iterable[bytes] = ()
) -> Client:
    """The whole of a request and its response. body: sent as JSON, its length stated; chunks: as they are."""
    return asyncio.run(acall(app, method, path, body, headers, chunks))


async def acall(
    app: ASGIApp, method: str, path: str, body: Any = None, headers: Headers | None = None, chunks: Iterable[bytes] = ()
) -> Client:
    client, given = request(app, body, chunks)
    await client.run(method, path, given | dict(headers or {}))
    return client


def request(app: ASGIApp, body: Any = None, chunks: Iterable[bytes] = ()) -> tuple[Client, dict[str, str]]:
    """A client that has not sent its request yet, and the headers of its body."""
    if body is None:
        return Client(app, [*chunks] or [b""]), {}
    raw = json.dumps(body).encode()
    return Client(app, [raw]), {"content-type": "application/json", "content-length": str(len(raw))}
