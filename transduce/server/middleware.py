"""What stands between a connection and the routes, each a plain ASGI application around another.

Owns who may come in, how much they may send, what happens when they leave, and that an exception becomes a response.
Knows no route and no engine.
"""

import asyncio
import hmac
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress
from hashlib import blake2b
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.core.checks import shown
from transduce.errors import RequestError, TransduceError
from transduce.server.access_log import Record, route_path
from transduce.server.errors import ForeignOrigin, TooLarge, TooSlow, Unauthorized, problem

KEY = "openai-insecure-api-key."
"""How a socket's subprotocol begins that is a key: browsers can send no header with it."""


class Failures:
    """Makes a response of an exception that none of the app's handlers took, if none was begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if begun or scope["type"] == "lifespan":
                raise
            await problem(error).response()(scope, receive, send)


class Gate:
    """Refuses requests while `closed` gives a reason, and runs the others in `inside`; open paths always pass."""

    def __init__(
        self,
        app: ASGIApp,
        closed: Callable[[], TransduceError | None],
        inside: Callable[[], AbstractContextManager[None]],
        is_open: Callable[[str], bool],
    ) -> None:
        self._app = app
        self._closed = closed
        self._inside = inside
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_open(route_path(scope)):
            await self._app(scope, receive, send)
        elif (reason := self._closed()) is not None:
            await problem(reason).response()(scope, receive, send)
        else:
            with self._inside():
                await self._app(scope, receive, send)


class Authenticate:
    """Asks for one of the keys, as OpenAI's clients send it, but not on open paths."""

    def __init__(self, app: ASGIApp, keys: Iterable[str], is_open: Callable[[str], bool]) -> None:
        self._app = app
        self._keys = [_digest(key.encode()) for key in sorted(keys)]
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_open(route_path(scope)):
            await self._app(scope, receive, send)
            return
        digest = _digest(_key(scope).encode("latin-1", "replace"))  # as Starlette has read it
        if self._known(digest):
            record: Record = scope["state"]["record"]
            record.salt = digest.hex()
            await self._app(scope, receive, send)
            return
        error = Unauthorized('no valid API key; send one as "Authorization: Bearer KEY"')
        await problem(error).response()(scope, receive, send)

    def _known(self, digest: bytes) -> bool:
        """Takes as long whichever key it is: digests are compared whole, and all of them."""
        return any([hmac.compare_digest(digest, key) for key in self._keys])  # noqa: C419


def _key(scope: Scope) -> str:
    """The key that is sent, in the header or as a subprotocol; "": none."""
    scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return next((name.removeprefix(KEY) for name in scope.get("subprotocols", ()) if name.startswith(KEY)), "")


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


class SameOrigin:
    """Refuses sockets to web pages of other origins than the server's own and those that are allowed.

    Of a response, a browser keeps what another origin may not read; of a socket, it leaves that to the server.
    """

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "websocket" else Headers()
        origin = headers.get("origin")
        if origin is None or {origin, "*"} & {*self._allowed} or urlsplit(origin).netloc == headers.get("host"):
            await self._app(scope, receive, send)
        else:
            error = ForeignOrigin(f"pages of {shown(origin)} may open no socket here; --allowed-origins lets them")
            await problem(error).response()(scope, receive, send)


class LimitBody:
    """Refuses bodies that are too large, by their stated length before they are read, else once they are, or too slow.

    largest: bytes of a body; largest_form: of a form to one of the routes `forms`, which may hold a file.
    longest: seconds from the request's first line to the end of its body.
    """

    def __init__(self, app: ASGIApp, largest: int, largest_form: int, forms: Collection[str], longest: float) -> None:
        self._app = app
        self._largest = largest
        self._largest_form = largest_form
        self._forms = forms
        self._longest = longest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Bounded(receive, send, *self._limit(scope), self._longest)
        length = Headers(scope=scope).get("content-length", "")
        if body.holds(int(length) if length.isdecimal() else 0):
            with suppress(_BodyRefusedError):
                await self._app(scope, body.receive, body.send)
        if body.refusal is not None and not body.begun:
            response = problem(body.refusal).response()
            response.headers["connection"] = "close"  # the rest of the body stays unread
            await response(scope, receive, send)

    def _limit(self, scope: Scope) -> tuple[int, str]:
        """The most bytes, and the flag that says so."""
        record: Record = scope["state"]["record"]
        form = Headers(scope=scope).get("content-type", "").lower().startswith("multipart/form-data")
        if form and record.route in self._forms:
            return self._largest_form, "--max-file-mb"
        return self._largest, "--max-body-mb"


class _BodyRefusedError(Exception):
    """Ends the reading of a body; whatever the app makes of it, the client learns of the refusal."""


class _Bounded:
    """A request's receive, which raises beyond a size or a time, and its send, which is deaf from then on."""

    def __init__(self, receive: Receive, send: Send, limit: int, flag: str, longest: float) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._flag = flag
        self._longest = longest
        self._deadline = asyncio.get_running_loop().time() + longest
        self._size = 0
        self._complete = False
        self.refusal: RequestError | None = None
        self.begun = False

    def holds(self, size: int) -> bool:
        """Whether so many bytes are let in; else they are refused."""
        if size > self._limit:
            self.refusal = TooLarge(f"the body is larger than {self._limit:,} bytes; send less, or raise {self._flag}")
        return self.refusal is None

    async def receive(self) -> Message:
        message = await (self._receive() if self._complete else self._in_time())
        self._complete = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if not self.holds(self._size):
            raise _BodyRefusedError
        return message

    async def send(self, message: Message) -> None:
        if self.begun or self.refusal is None:
            self.begun = True
            await self._send(message)

    async def _in_time(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError:
            self.refusal = TooSlow(
                f"the body was not complete after {self._longest:g} s; send it faster, or raise --request-timeout"
            )
            raise _BodyRefusedError from None


class CancelOnDisconnect:
    """Cancels the handler when the client leaves, be the response a stream or not.

    patience: seconds after which a client that takes no more of its response is one that left.
    """

    def __init__(self, app: ASGIApp, patience: float) -> None:
        self._app = app
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = _Client(receive, send, self._patience)
        try:
            await self._app(scope, client.receive, client.send)
        except asyncio.CancelledError:
            if not client.gone.is_set():
                raise
            client.handler.uncancel()
            record: Record = scope["state"]["record"]
            record.left = True
        finally:
            await client.forget()


class _Client:
    """A request's receive and send. Once the body is read, nobody but the watcher waits for what comes next."""

    def __init__(self, receive: Receive, send: Send, patience: float) -> None:
        handler = asyncio.current_task()
        assert handler is not None, "ASGI runs in a task"
        self.handler = handler
        self.gone = asyncio.Event()
        self._receive = receive
        self._send = send
        self._patience = patience
        self._watcher: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        if self._watcher is not None:
            await self.gone.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            await self._give_up()  # before the app can take half a body for a bad one
        if not message.get("more_body", False):
            self._watcher = asyncio.create_task(self._watch())
        return message

    async def send(self, message: Message) -> None:
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last:
            await self.forget()  # the server reports the end of the response as a client that left
        try:
            async with asyncio.timeout(self._patience):
                await self._send(message)
        except TimeoutError:
            await self._give_up()

    async def forget(self) -> None:
        """Watch no more."""
        watcher = self._watcher
        if watcher is not None and not watcher.done():
            watcher.cancel()
            await asyncio.wait([watcher])

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    async def _give_up(self) -> None:
        self._leave()
        await asyncio.sleep(0)  # where the cancellation arrives

    def _leave(self) -> None:
        self.gone.set()
        self.handler.cancel()
