"""What goes wrong over HTTP: the server's own exceptions, and every exception as OpenAI's error object.

    RequestError
    ├── EmptyBuffer        400  audio that is to be transcribed, of which there is none
    ├── FieldError              a field's value that is refused
    │   ├── Unsupported    400  a field that would change the answer, and cannot be followed
    │   └── NotServed      404  a model that is not here, or a task that this one cannot do
    ├── TooSlow            408  a body that did not come to its end in time
    └── TooLarge           413  a body, a file or audio beyond the server's bounds
    TransduceError
    ├── Unauthorized       401  no valid API key
    ├── ForeignOrigin      403  a web page of another origin, which may not open a socket
    ├── Overloaded         429  too many requests wait
    ├── Draining           503  the server is shutting down
    └── TimedOut           504  the answer took longer than the server allows

Owns statuses and the object's form. Knows no route.
"""

# ruff: noqa: N818  # named by what the client is told

import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from transduce.core.checks import LENGTH, shown
from transduce.errors import CapacityError, EngineDeadError, EngineError, MediaError, RequestError, TransduceError

logger = logging.getLogger(__name__)


class FieldError(RequestError):
    """A field's value that is refused. param: the field. kind: the exception whose status and code it has."""

    def __init__(self, message: str, param: str | None = None, kind: type[TransduceError] | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.kind = kind or type(self)


class Unsupported(FieldError):
    """A field that would change the answer, and cannot be followed."""


class NotServed(FieldError):
    """A model that is not here, or a task that this one cannot do. code: "model_not_found" or "not_served"."""

    def __init__(self, message: str, code: str = "not_served", param: str | None = None) -> None:
        super().__init__(message, param)
        self.code = code


class EmptyBuffer(RequestError):
    """Audio that is to be transcribed, of which there is none."""


class TooSlow(RequestError):
    """A body that did not come to its end in time."""


class TooLarge(RequestError):
    """A body, a file or audio beyond the server's bounds."""


class Unauthorized(TransduceError):
    """No valid API key."""


class ForeignOrigin(TransduceError):
    """A web page of another origin, which may not open a socket."""


class Overloaded(TransduceError):
    """Too many requests wait. retry_after: seconds after which to try again."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Draining(TransduceError):
    """The server is shutting down and takes no new requests."""


class TimedOut(TransduceError):
    """The answer took longer than the server allows."""


class ErrorObject(TypedDict):
    """What went wrong. param: the field at fault, where it is one."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    """OpenAI's error object."""

    error: ErrorObject


def documented(*media: str) -> dict[int | str, dict[str, Any]]:
    """A route's responses, for its documentation: media types besides JSON that it may answer with, and errors."""
    return {
        200: {"content": {each: {"schema": {"type": "string"}} for each in media}},
        "4XX": {"model": ErrorBody, "description": "The request is at fault, or too many wait (429)."},
        "5XX": {"model": ErrorBody, "description": "The server is at fault, or not ready (503)."},
    }


@dataclass(frozen=True, slots=True)
class Problem:
    """An exception as the client sees it."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> ErrorBody:
        """OpenAI's error object."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The HTTP response. In ASCII, since a refused value may hold what is no UTF-8."""
        content = json.dumps(self.body)
        return Response(content, self.status, dict(self.headers), media_type="application/json")


_TYPES: Mapping[int, str] = {401: "authentication_error", 429: "rate_limit_error"}

_STATUSES: Sequence[tuple[type[TransduceError], int, str]] = (
    (Unsupported, 400, "unsupported"),
    (NotServed, 404, "not_served"),
    (TooSlow, 408, "too_slow"),
    (TooLarge, 413, "too_large"),
    (MediaError, 400, "unreadable_media"),
    (CapacityError, 400, "too_long"),
    (EmptyBuffer, 400, "input_audio_buffer_commit_empty"),
    (RequestError, 400, "invalid_request"),
    (Unauthorized, 401, "invalid_api_key"),
    (ForeignOrigin, 403, "foreign_origin"),
    (Overloaded, 429, "overloaded"),
    (Draining, 503, "draining"),
    (TimedOut, 504, "timed_out"),
    (EngineDeadError, 503, "engine_unavailable"),
    (EngineError, 500, "engine_error"),
)
"""Status and code of exceptions: the first that fits counts."""

_ROUTING: Mapping[int, tuple[str, str]] = {
    404: ("not_found", "there is no such route; /openapi.json lists all"),
    405: ("method_not_allowed", "the route takes another method; the Allow header names it"),
    426: ("upgrade_required", "the route is a WebSocket; open it with ws:// or wss:// instead of http:// or https://"),
}
"""Code and message where no route fits."""

LONGEST = 2_000
"""Characters of a message: a value that it shows may be as large as a body."""


def problem(error: Exception) -> Problem:
    """What a client is told of an exception. One that nobody raised on purpose is logged, and not told."""
    match error:
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _unrouted(error)
        case TransduceError():
            return _told(error)
        case _:
            logger.error("a request failed", exc_info=error)
            return Problem(500, "internal error; the server's log has the traceback", "internal_error")


def handlers() -> dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]]:
    """Exception handlers for the app."""

    async def handle(request: Request, error: Exception) -> Response:
        return problem(error).response()

    kinds: Sequence[int | type[Exception]] = (RequestValidationError, HTTPException, TransduceError, Exception)
    return dict.fromkeys(kinds, handle)


def _told(error: TransduceError) -> Problem:
    kind, param = (error.kind, error.param) if isinstance(error, FieldError) else (type(error), None)
    status, code = next(
        ((status, code) for known, status, code in _STATUSES if issubclass(kind, known)), (500, "internal_error")
    )
    told = Problem(status, str(error)[:LONGEST], code, param)
    match error:
        case Overloaded():
            return replace(told, headers={"Retry-After": str(error.retry_after)})
        case Unauthorized():
            return replace(told, headers={"WWW-Authenticate": "Bearer"})
        case NotServed():
            return replace(told, code=error.code)
        case _:
            return told


def _unrouted(error: HTTPException) -> Problem:
    """What the framework refuses: no route, or a body that it cannot read, for the reason that is its cause."""
    code, message = _ROUTING.get(error.status_code, ("invalid_request", str(error.detail)))
    if isinstance(cause := error.__cause__, ValueError | RecursionError):
        message = f"the body cannot be read: {cause}"
    return Problem(error.status_code, message, code, headers=error.headers or {})


def _invalid(error: RequestValidationError) -> Problem:
    """A body that is not what the route takes: the first of its faults."""
    fault = error.errors()[0]
    place = [part for part in fault["loc"][1:] if isinstance(part, str)]
    param = place[0] if place else None
    match fault["type"]:
        case "value_error" if isinstance(cause := fault["ctx"]["error"], TransduceError):
            told = _told(cause)
            return replace(told, param=told.param or param)
        case "json_invalid":
            return Problem(400, f"the body is no JSON: {fault['ctx']['error']}", "invalid_request")
        case "extra_forbidden":
            message = f"{param}={_shown(fault['input'])} is not supported; leave it out"
            return Problem(400, message, "unsupported", param)
        case "missing" if param is not None:
            where = f" in {param}" if len(place) > 1 else ""
            return Problem(400, f"{place[-1]} is missing{where}; give it", "invalid_request", param)
    if param is None:
        message = "the body is no JSON object; send one, with Content-Type: application/json"
        return Problem(400, message, "invalid_request")
    message = str(fault["msg"])
    message = f"{param}={_shown(fault['input'])}: {message[:1].lower()}{message[1:]}"
    return Problem(400, message, "invalid_request", param)


def _shown(value: object) -> str:
    """A refused value for a message. To write out a list or an object may take long, or be nested too deeply."""
    match value:
        case list():
            return "[…]" if value else "[]"
        case dict():
            return "{…}" if value else "{}"
        case str() | bytes():
            return shown(value[:LENGTH])
        case _:
            return shown(value)
