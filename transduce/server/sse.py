"""Server-sent events: how a stream of JSON objects is framed, begun, and ended by an error.

Knows no route.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from transduce.server.errors import problem

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

DONE = b"data: [DONE]\n\n"

Events = AsyncGenerator[Any, None]
"""JSON objects."""


def event(data: Mapping[str, Any]) -> bytes:
    """One event."""
    return f"data: {_encode(data)}\n\n".encode()


class EventStream(StreamingResponse):
    """Ends its events with itself: a client that left must not wait for the garbage collector."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # proxies shall hold nothing back
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()


async def respond(events: Events) -> EventStream:
    """The events as a response, once there is a first one: what is raised before it becomes an HTTP error."""
    first = await anext(events)
    return EventStream(_framed(first, events))


async def _framed(first: Mapping[str, Any], rest: Events) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield event(first)
        try:
            async for data in rest:
                yield event(data)
        except Exception as error:  # noqa: BLE001  # `problem` logs what nobody raised on purpose
            yield event(problem(error).body)
        else:
            yield DONE
