"""Middlewares on their own: keys, bodies that are too large, clients that leave, exceptions."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.server.asgi import Client, call, request
from tests.server.fakes import FakeLLM, service
from transduce.errors import EngineDeadError
from transduce.server.access_log import AccessLog, Record
from transduce.server.app import create_app
from transduce.server.middleware import Authenticate, CancelOnDisconnect, Failures, Gate, LimitBody

KEYS = ("alpha", "βeta")


def is_open(path: str) -> bool:
    return path == "/health"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(body + scope["state"]["record"].salt.encode())(scope, receive, send)


def logged(app: ASGIApp) -> AccessLog:
    return AccessLog(app, lambda route, status: None, lambda scope: str(scope["path"]), frozenset())


def guarded() -> AccessLog:
    return logged(Authenticate(echo, KEYS, is_open))


@pytest.mark.parametrize(
    "given",
    [{}, {"authorization": ""}, {"authorization": "alpha"}, {"authorization": "Basic alpha"},
     {"authorization": "Bearer "}, {"authorization": "Bearer alph"}, {"authorization": "Bearer alphaa"}],
)  # fmt: skip
def test_without_a_valid_key_nothing_is_told(given: dict[str, str]) -> None:
    refused = call(guarded(), "POST", "/v1/completions", headers=given)
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json["error"]["type"] == "authentication_error"
    assert refused.json["error"]["code"] == "invalid_api_key"
    assert "alpha" not in refused.json["error"]["message"]


def test_open_paths_ask_for_none() -> None:
    assert call(guarded(), "GET", "/health").status == 200
    assert call(guarded(), "GET", "/health/").status == 401


def test_each_key_opens_and_sets_its_clients_apart() -> None:
    salts = set()
    for key in ("Bearer alpha", "bearer  alpha", "Bearer βeta"):
        answer = call(guarded(), "GET", "/v1/models", headers={"authorization": key})
        assert answer.status == 200
        salts.add(answer.body)
    assert len(salts) == 2
    assert not any(key.encode() in salt for key in KEYS for salt in salts)


def limited(reads: list[int]) -> AccessLog:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await Request(scope, receive).body()
        except Exception:  # as frameworks do
            await PlainTextResponse("unreadable", 400)(scope, receive, send)
            raise
        reads.append(len(body))
        await PlainTextResponse("read")(scope, receive, send)

    return logged(Failures(LimitBody(app, largest=10, largest_form=20, forms={"/form"}, longest=60)))


FORM = {"content-type": "multipart/form-data; boundary=x"}
UPPER = {"content-type": "Multipart/Form-Data; boundary=x"}


@pytest.mark.parametrize(
    ("path", "given", "most"), [("/form", {}, 10), ("/form", FORM, 20), ("/form", UPPER, 20), ("/json", FORM, 10)]
)
def test_a_body_may_have_its_size_and_no_more(path: str, given: dict[str, str], most: int) -> None:
    reads: list[int] = []
    for size in (most, most + 1):
        stated = {"content-length": str(size)}
        call(limited(reads), "POST", path, headers=given | stated, chunks=[b"x" * size])
        call(limited(reads), "POST", path, headers=given, chunks=[b"x"] * size)  # chunked: no length is stated
    assert reads == [most, most]


@pytest.mark.parametrize("stated", [{"content-length": "11"}, {}, {"content-length": "3"}])
def test_a_larger_body_is_a_413(stated: dict[str, str]) -> None:
    refused = call(limited([]), "POST", "/", headers=stated, chunks=[b"x" * 6, b"x" * 5])
    assert (refused.status, refused.complete) == (413, True)
    assert refused.json["error"]["code"] == "too_large"
    assert "--max-body-mb" in refused.json["error"]["message"]
    assert refused.headers["connection"] == "close"


def test_a_stated_length_is_refused_before_anything_is_read() -> None:
    refused = call(limited([]), "POST", "/", headers={"content-length": "11"}, chunks=[b"x" * 11])
    assert (refused.status, refused.read) == (413, 0)


def test_a_response_that_has_begun_is_left_as_it_is() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with contextlib.suppress(Exception):
            await Request(scope, receive).body()
        await send({"type": "http.response.body", "body": b"early"})

    answer = call(logged(LimitBody(app, largest=1, largest_form=1, forms=(), longest=60)), "POST", "/", chunks=[b"xx"])
    assert (answer.status, answer.body, answer.complete) == (200, b"early", True)


class HalfSent(Client):
    """A client whose last chunk is not its body's."""

    async def receive(self) -> Message:
        message = await super().receive()
        return {**message, "more_body": True} if message["type"] == "http.request" else message


class Full(Client):
    """A client that takes nothing of its response."""

    async def send(self, message: Message) -> None:
        await asyncio.Event().wait()


def test_a_body_that_does_not_end_is_a_408_and_holds_no_place() -> None:
    llm, form = FakeLLM("audio"), {"content-type": "multipart/form-data; boundary=x"}
    for path, headers in (("/v1/audio/transcriptions", form), ("/tokenize", {})):
        served = service(llm, request_timeout=0.01)
        client = HalfSent(create_app(served), [b"--x\r\n"])
        asyncio.run(client.run("POST", path, headers))
        assert (client.status, client.json["error"]["code"]) == (408, "too_slow")
        assert client.headers["connection"] == "close"
        assert asyncio.run(served.drain()), "nobody is inside"


def test_a_client_that_takes_no_more_of_its_response_is_one_that_left() -> None:
    records: list[Record] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        records.append(scope["state"]["record"])
        await PlainTextResponse("long")(scope, receive, send)

    client = Full(logged(CancelOnDisconnect(app, patience=0.01)), [b""])
    asyncio.run(client.run("GET", "/", {}))
    assert records[0].left


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_cancels_its_handler(streamed: bool) -> None:
    ended: list[str] = []
    records: list[Record] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        records.append(scope["state"]["record"])
        await Request(scope, receive).body()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []}) if streamed else None
            reached.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def leave() -> None:
        client, headers = request(logged(CancelOnDisconnect(app, patience=60)), {"prompt": "x"})
        running = asyncio.create_task(client.run("POST", "/", headers))
        await reached.wait()
        client.leave()
        await running

    reached = asyncio.Event()
    asyncio.run(leave())
    assert ended == ["cancelled"]
    assert records[0].left
    assert records[0].status == (200 if streamed else 499)


def test_a_client_that_leaves_amid_its_body_gets_no_answer() -> None:
    """Who asked for the body would take what there is of it for a bad request."""
    records: list[Record] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        records.append(scope["state"]["record"])
        with contextlib.suppress(ClientDisconnect):
            await Request(scope, receive).body()
        await PlainTextResponse("bad request", 400)(scope, receive, send)

    async def leave() -> None:
        client = HalfSent(logged(CancelOnDisconnect(app, patience=60)), [b"x"])
        client.leave()
        await client.run("POST", "/", {})
        assert not client.messages

    asyncio.run(leave())
    assert (records[0].status, records[0].left) == (499, True)


def test_a_cancelled_server_is_no_client_that_left() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def cancel() -> None:
        client, headers = request(logged(CancelOnDisconnect(app, patience=60)), {})
        running = asyncio.create_task(client.run("POST", "/", headers))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())


def test_a_complete_response_is_no_client_that_left() -> None:
    """Servers tell an application that reads on after its response of a disconnect."""
    after: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        await PlainTextResponse("done")(scope, receive, send)
        await asyncio.sleep(0)
        after.append("went on")

    answer = call(logged(CancelOnDisconnect(app, patience=60)), "POST", "/", {"a": 1})
    assert (answer.body, after) == (b"done", ["went on"])


def test_a_streaming_response_still_learns_of_the_disconnect() -> None:
    """It listens itself, by the receive that it is given."""

    async def endless() -> AsyncGenerator[str, None]:
        yield "a"
        await asyncio.Event().wait()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        await StreamingResponse(endless())(scope, receive, send)

    async def leave() -> None:
        client, headers = request(logged(CancelOnDisconnect(app, patience=60)), {})
        running = asyncio.create_task(client.run("POST", "/", headers))
        await client.started.wait()
        client.leave()
        await running

    asyncio.run(leave())


def test_an_exception_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyError("a secret")

    answer = call(logged(Failures(app)), "GET", "/")
    assert (answer.status, answer.json["error"]["type"]) == (500, "server_error")
    assert "secret" not in answer.body.decode()
    assert "a secret" in caplog.text


def test_an_exception_amid_a_response_breaks_it_off() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise KeyError("late")

    with pytest.raises(KeyError):
        call(logged(Failures(app)), "GET", "/")


def test_the_gate() -> None:
    inside: list[int] = [0]
    reason: list[EngineDeadError | None] = [EngineDeadError("still loading")]

    @contextlib.contextmanager
    def counted() -> Iterator[None]:
        inside[0] += 1
        yield
        inside[0] -= 1

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(str(inside[0]))(scope, receive, send)

    gate = logged(Gate(app, lambda: reason[0], counted, is_open))
    refused = call(gate, "POST", "/v1/completions")
    assert (refused.status, refused.json["error"]["message"]) == (503, "still loading")
    assert call(gate, "GET", "/health").body == b"0"
    reason[0] = None
    assert call(gate, "POST", "/v1/completions").body == b"1"
    assert inside == [0]
