"""Request ids in and out, and one line of log and one count per HTTP request.

Owns the Record that a request carries, in which others write what they come to know. Knows no route.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.frontend.outputs import RequestMetrics

log = logging.getLogger("transduce.access")

ID = re.compile(r"[\x21-\x7e]{1,128}")
"""A client's request id that is taken; any other is replaced."""

LEFT = 499
"""The status, nginx's, of a request whose client left before the response began."""

OPENED = 101
"""The status of a request that has become a socket."""

BEGINNINGS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
"""Messages that carry the response's headers."""


@dataclass(slots=True)
class Record:
    """One HTTP request. Times are in seconds.

    path: as asked for; route: its template. status: 0 until the response begins. salt: what sets its client apart in
    the encoder cache. left: whether the client left before the response was complete. queued, first_token: the longest
    and the shortest, of its prompts.
    input_tokens, output_tokens: over all its prompts, encoder and decoder; of audio and images, the encoder's rows.
    audio: seconds of it.
    """

    request_id: str
    client: str
    method: str
    path: str
    route: str
    salt: str = ""
    admitted: bool = False
    status: int = 0
    left: bool = False
    queued: float | None = None
    first_token: float | None = None
    total: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    audio: float | None = None
    _started: float = field(default_factory=time.perf_counter)

    def answered(self, times: RequestMetrics, input_tokens: int, output_tokens: int) -> None:
        """One of its prompts has its answer."""
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        if times.first_scheduled_time is not None:
            self.queued = max(self.queued or 0.0, times.first_scheduled_time - times.arrival_time)
        if times.first_token_time is not None:
            first = times.first_token_time - times.arrival_time
            self.first_token = first if self.first_token is None else min(first, self.first_token)

    def heard(self, seconds: float) -> None:
        """Its clip was transcribed."""
        self.audio = seconds

    def close(self) -> None:
        """The response is complete, or never will be."""
        self.total = time.perf_counter() - self._started
        self.status = self.status or LEFT

    def fields(self) -> Mapping[str, Any]:
        """What the log line says, without what is not known."""
        times = {"queue": self.queued, "first_token": self.first_token, "total": self.total}
        seconds = {**times, "audio": self.audio}
        tokens = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens} if self.output_tokens else {}
        return {
            "method": self.method,
            "path": self.path,
            "status": self.status,
            **({"left": True} if self.left else {}),
            **{f"{name}_seconds": round(value, 4) for name, value in seconds.items() if value is not None},
            **tokens,
            "client": self.client,
            "request_id": self.request_id,
        }


class AccessLog:
    """The outermost middleware: makes the Record (scope["state"]["record"]), answers with its id, logs its end.

    responded(route, status) is told of every response; template: a request's route, by its template. Requests to
    `probes` are logged at debug.
    """

    def __init__(
        self,
        app: ASGIApp,
        responded: Callable[[str, int], None],
        template: Callable[[Scope], str],
        probes: frozenset[str],
    ) -> None:
        self._app = app
        self._responded = responded
        self._template = template
        self._probes = probes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        record = _record(scope, self._template(scope))
        scope.setdefault("state", {})["record"] = record

        async def noted(message: Message) -> None:
            if message["type"] in BEGINNINGS:
                record.status = message.get("status", OPENED)
                MutableHeaders(scope=message)["x-request-id"] = record.request_id
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            record.close()
            self._responded(record.route, record.status)
            self._log(record)

    def _log(self, record: Record) -> None:
        level = logging.DEBUG if record.path in self._probes else logging.INFO
        log.log(level, "", extra={"fields": record.fields()})


def route_path(scope: Scope) -> str:
    """The path without the prefix under which a proxy shows the server."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def _record(scope: Scope, route: str) -> Record:
    given = Headers(scope=scope).get("x-request-id", "")
    client = scope.get("client")
    return Record(
        request_id=given if ID.fullmatch(given) else uuid4().hex,
        client=client[0] if client else "",
        method=scope.get("method", "GET"),
        path=route_path(scope),
        route=route,
    )
