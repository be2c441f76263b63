"""The application around a fake engine: states, ids, admission, time, keys, origins, and its own routes."""

import asyncio
import re
from typing import Any

import pytest
from starlette.requests import Request

import transduce
from tests.server.asgi import Client, acall, call, request
from tests.server.fakes import MODEL, FakeLLM, app, service
from transduce import EngineConfig, SamplingParams
from transduce.async_engine.stats import Stats
from transduce.errors import CapacityError, EngineDeadError, EngineError, RequestError

BODY = {"model": MODEL, "prompt": "x y"}
COMPLETIONS = "/v1/completions"


def complete(llm: FakeLLM, headers: dict[str, str] | None = None, **options: Any) -> Client:
    return call(app(llm, **options), "POST", COMPLETIONS, BODY, headers)


def test_a_completion() -> None:
    answer = complete(FakeLLM())
    assert answer.status == 200
    assert answer.json["choices"][0]["text"] == "ab"
    assert answer.json["model"] == MODEL


@pytest.mark.parametrize(("given", "kept"), [("abc-1", True), ("x" * 129, False), ("a b", False), ("", False)])
def test_request_ids_go_in_and_out(given: str, kept: bool) -> None:
    answer = complete(FakeLLM(), {"x-request-id": given})
    assert (answer.headers["x-request-id"] == given) == kept
    assert kept or re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


def test_refusals_have_an_id_too() -> None:
    for path in ("/nowhere", "/v1/models/other", "/ready"):
        assert call(app(), "GET", path).headers["x-request-id"]
    refused = call(app(api_key=("k",)), "POST", COMPLETIONS, BODY, {"x-request-id": "mine"})
    assert (refused.status, refused.headers["x-request-id"]) == (401, "mine")


@pytest.mark.parametrize(
    ("state", "health", "ready", "answer"),
    [("stopped", 200, 503, 503), ("loading", 200, 503, 503), ("ready", 200, 200, 200), ("restarting", 200, 503, 200),
     ("failed", 503, 503, 503)],
)  # fmt: skip
def test_probes_by_the_engine_s_state(state: str, health: int, ready: int, answer: int) -> None:
    """A restarting engine refuses requests itself, the fake one does not."""
    llm = FakeLLM()
    llm.state = state
    found = call(app(llm), "GET", "/health"), call(app(llm), "GET", "/ready"), complete(llm)
    assert [each.status for each in found] == [health, ready, answer]
    assert found[0].json == {"status": "loading" if state == "stopped" else state}


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/health", "/metrics", "/version"])
def test_the_page_and_probes_need_no_key_and_no_model(path: str) -> None:
    llm = FakeLLM()
    llm.state = "loading"
    assert call(app(llm, api_key=("k",)), "GET", path).status == 200


@pytest.mark.parametrize("path", ["/v1/models", "/static", "//static/app.js", "/health/", "/openapi.json"])
def test_all_else_needs_a_key(path: str) -> None:
    assert call(app(api_key=("k",)), "GET", path).status == 401


def test_without_a_playground_there_is_no_page() -> None:
    assert call(app(disable_playground=True), "GET", "/").status == 404


def test_while_it_loads_all_else_says_so() -> None:
    llm = FakeLLM()
    llm.state = "loading"
    del llm.frontend
    for method, path in (("GET", "/v1/models"), ("POST", COMPLETIONS), ("POST", "/tokenize"), ("GET", "/nowhere")):
        refused = call(app(llm), method, path)
        assert refused.status == 503
        assert "still loading" in refused.json["error"]["message"]
    assert call(app(llm), "GET", "/version").json == {"version": transduce.__version__}
    assert call(app(llm), "GET", "/metrics").status == 200


def test_models() -> None:
    served = app(served_model_name=("good", "org/better"))
    listed = call(served, "GET", "/v1/models").json
    assert [each["id"] for each in listed["data"]] == ["good", "org/better"]
    assert {each["root"] for each in listed["data"]} == {MODEL}
    assert call(served, "GET", "/v1/models/org/better").json == listed["data"][1]
    unknown = call(served, "GET", f"/v1/models/{MODEL}")
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")
    assert "good, org/better" in unknown.json["error"]["message"]


@pytest.mark.parametrize(
    ("media", "language", "tasks"),
    [(None, None, ["generate"]), ("audio", "en", ["transcribe"]), ("audio", None, ["transcribe", "translate"])],
)
def test_models_say_what_they_can_do(media: str | None, language: str | None, tasks: list[str]) -> None:
    (listed,) = call(app(FakeLLM(media, language)), "GET", "/v1/models").json["data"]
    assert listed["tasks"] == tasks


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", COMPLETIONS, 405)])
def test_what_is_not_there_is_an_error_object(method: str, path: str, status: int) -> None:
    answer = call(app(), method, path)
    assert answer.status == status
    assert answer.json["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("error", "status"),
    [(RequestError("bad"), 400), (CapacityError("long"), 400), (EngineError("failed"), 500),
     (EngineDeadError("dead"), 503), (ZeroDivisionError("ours"), 500)],
)  # fmt: skip
def test_what_the_engine_raises(error: Exception, status: int) -> None:
    llm = FakeLLM()
    llm.error = error
    answer = complete(llm)
    assert answer.status == status
    assert (str(error) in answer.json["error"]["message"]) == (not isinstance(error, ZeroDivisionError))


def test_more_than_may_wait_are_refused() -> None:
    """Running ones do not count, nor those that wait for the next step alone, as there are places for them."""
    llm = FakeLLM()
    llm.config = EngineConfig(model=MODEL, max_num_seqs=3)
    for live, waiting, left, most, status in (
        (1, 1, 0, 0, 200), (2, 2, 0, 0, 200), (3, 3, 0, 0, 429), (3, 3, 0, 1, 200), (3, 0, 0, 0, 429),
        (2, 0, 0, 0, 200), (4, 2, 1, 3, 200), (4, 2, 1, 2, 429), (5, 2, 0, 2, 429),
    ):  # fmt: skip
        llm.live, llm.waiting, llm.stats, llm.asked = live, waiting, Stats(waiting=left), []
        assert complete(llm, max_waiting=most).status == status
    refused = complete(llm, max_waiting=2)
    assert (refused.status, refused.json["error"]["type"]) == (429, "rate_limit_error")
    assert refused.headers["retry-after"] == "1"
    assert not llm.asked


def test_prompts_of_a_request_that_is_let_in_all_are() -> None:
    """Else a long list would be told to try again for ever."""
    llm = FakeLLM()
    body = BODY | {"prompt": [f"{number}" for number in range(20)]}
    assert len(call(app(llm, max_waiting=3), "POST", COMPLETIONS, body).json["choices"]) == 20


def test_a_request_hands_over_as_many_prompts_as_can_run_and_the_rest_as_they_finish() -> None:
    body = BODY | {"prompt": [f"{number}" for number in range(20)]}

    async def crowd(leaves: bool) -> tuple[FakeLLM, Client]:
        llm = FakeLLM()
        llm.config = EngineConfig(model=MODEL, max_num_seqs=3)
        llm.go.clear()
        client, headers = request(app(llm), body)
        running = asyncio.create_task(client.run("POST", COMPLETIONS, headers))
        while llm.live < 3:
            await asyncio.sleep(0)
        for _ in range(99):  # turns in which more would come
            await asyncio.sleep(0)
        assert llm.live == len(llm.asked) == 3
        client.leave() if leaves else llm.go.set()
        await running
        assert llm.live == 0
        return llm, client

    llm, client = asyncio.run(crowd(leaves=False))
    assert [each["prompt"]["encoder_prompt"] for each in llm.asked] == body["prompt"]
    assert [choice["index"] for choice in client.json["choices"]] == [*range(20)]
    assert len(asyncio.run(crowd(leaves=True))[0].asked) == 3


def test_where_too_many_wait_no_prompt_is_read() -> None:
    """The fake has no tokenizer, which a chat's messages, and an echo of token ids, would be read with."""
    llm = FakeLLM()
    llm.live = llm.waiting = 9
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        (COMPLETIONS, {"prompt": [5], "echo": True}),
        ("/v1/score_target", {"source": "x", "target": "x"}),
    ):
        llm.config = EngineConfig(model=MODEL, max_num_seqs=1)
        assert call(app(llm, max_waiting=8), "POST", path, body).status == 429


def test_more_requests_than_can_wait_or_run_are_not_even_read() -> None:
    llm = FakeLLM()
    llm.config = EngineConfig(model=MODEL, max_num_seqs=2)
    llm.go.clear()
    served = app(llm, max_waiting=1)

    async def crowd() -> tuple[Client, Client, list[Client]]:
        clients = [request(served, BODY) for _ in range(3)]
        running = [asyncio.create_task(client.run("POST", COMPLETIONS, headers)) for client, headers in clients]
        while llm.live < 3:
            await asyncio.sleep(0)
        refused = await acall(served, "POST", COMPLETIONS, BODY)
        alive = await acall(served, "GET", "/health")
        llm.go.set()
        await asyncio.gather(*running)
        return refused, alive, [client for client, _ in clients]

    refused, alive, served_ones = asyncio.run(crowd())
    assert (refused.status, refused.read, alive.status) == (429, 0, 200)
    assert [client.status for client in served_ones] == [200] * 3


@pytest.mark.parametrize(("queued", "seconds"), [(0.0, "1"), (12.3, "13"), (1e6, "60")])
def test_retry_after_is_how_long_requests_wait(queued: float, seconds: str) -> None:
    llm = FakeLLM()
    llm.queued = queued
    served = app(llm)

    async def ask() -> Client:
        for _ in range(100):
            await acall(served, "POST", COMPLETIONS, BODY)
        llm.waiting, llm.stats = 256, Stats(waiting=256)
        return await acall(served, "POST", COMPLETIONS, BODY)

    assert asyncio.run(ask()).headers["retry-after"] == seconds


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_takes_too_long(stream: bool) -> None:
    llm = FakeLLM()
    llm.go.clear()
    answer = call(app(llm, request_timeout=0.05), "POST", COMPLETIONS, BODY | {"stream": stream})
    assert answer.status == (200 if stream else 504)
    assert "within 0.05 s" in answer.body.decode()
    assert (llm.left, llm.live) == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_aborts_its_request(stream: bool) -> None:
    llm = FakeLLM()
    llm.go.clear()

    async def leave() -> Client:
        client, headers = request(app(llm), BODY | {"stream": stream})
        running = asyncio.create_task(client.run("POST", COMPLETIONS, headers))
        await llm.entered.wait()
        client.leave()
        await running
        return client

    client = asyncio.run(leave())
    assert (llm.left, llm.live) == (1, 0)
    assert not client.complete


def test_several_prompts_end_together_when_their_client_leaves() -> None:
    llm = FakeLLM()
    llm.go.clear()

    async def leave() -> None:
        client, headers = request(app(llm), BODY | {"prompt": ["x", "y", "z"]})
        running = asyncio.create_task(client.run("POST", COMPLETIONS, headers))
        while llm.live < 3:
            await asyncio.sleep(0)
        client.leave()
        await running

    asyncio.run(leave())
    assert (llm.left, llm.live) == (3, 0)


def test_draining() -> None:
    llm = FakeLLM()
    llm.go.clear()
    served = app(llm)

    async def drain() -> tuple[Client, Client, Client, bool]:
        client, headers = request(served, BODY)
        running = asyncio.create_task(client.run("POST", COMPLETIONS, headers))
        await llm.entered.wait()
        draining = asyncio.create_task(served.state.service.drain())
        await asyncio.sleep(0)
        ready, refused = await acall(served, "GET", "/ready"), await acall(served, "POST", COMPLETIONS, BODY)
        assert (await acall(served, "GET", "/health")).status == 200
        assert not draining.done()
        llm.go.set()
        await running
        return client, ready, refused, await draining

    client, ready, refused, finished = asyncio.run(drain())
    assert (client.status, client.json["choices"][0]["text"]) == (200, "ab")
    assert (ready.status, ready.json) == (503, {"status": "draining"})
    assert (refused.status, "shutting down" in refused.json["error"]["message"]) == (503, True)
    assert finished
    assert asyncio.run(service().drain())


def test_draining_gives_up_in_time() -> None:
    llm = FakeLLM()
    llm.go.clear()
    served = app(llm, shutdown_timeout=0.05)

    async def drain() -> bool:
        client, headers = request(served, BODY)
        running = asyncio.create_task(client.run("POST", COMPLETIONS, headers))
        await llm.entered.wait()
        finished: bool = await served.state.service.drain()
        llm.go.set()
        await running
        return finished

    assert not asyncio.run(drain())


def test_clients_share_encoder_outputs_only_with_their_own_key() -> None:
    llm = FakeLLM()
    for key in ("alpha", "beta", "alpha"):
        complete(llm, {"authorization": f"Bearer {key}"}, api_key=("alpha", "beta"))
    complete(llm)
    salts = [asked["prompt"]["cache_salt"] for asked in llm.asked[:3]]
    assert salts[0] == salts[2] != salts[1]
    assert llm.asked[0]["prompt"]["encoder_prompt"] == "x y"
    assert "alpha" not in salts[0]
    assert "cache_salt" not in llm.asked[3]["prompt"]


def test_a_prompt_s_own_salt_wins() -> None:
    llm = FakeLLM()
    served = service(llm)

    async def generate(prompt: Any) -> None:
        http = Request({"type": "http", "state": {"record": _record("by key")}})
        async for _ in served.generate(http, prompt, SamplingParams(), stream=False):
            pass

    asyncio.run(generate({"prompt": "x", "cache_salt": "own"}))
    asyncio.run(generate({"prompt": "x"}))
    asyncio.run(generate([4, 5]))
    assert [asked["prompt"] for asked in llm.asked] == [
        {"prompt": "x", "cache_salt": "own"},
        {"prompt": "x", "cache_salt": "by key"},
        {"encoder_prompt": [4, 5], "cache_salt": "by key"},
    ]


def _record(salt: str) -> Any:
    from transduce.server.access_log import Record

    return Record("id", "", "POST", "/", "/", salt=salt)


def test_requests_take_turns_by_their_id() -> None:
    llm = FakeLLM()
    complete(llm, {"x-request-id": "mine"})
    assert (llm.asked[0]["owner"], llm.asked[0]["priority"]) == ("mine", 0)


def test_a_priority_is_for_servers_that_have_some() -> None:
    """With one, a request is refused only for too many that it would wait for."""
    llm = Ranked()
    served = app(llm, priority=True, max_waiting=2)
    answer = call(served, "POST", COMPLETIONS, BODY | {"priority": -3})
    assert (answer.status, [each["priority"] for each in llm.asked]) == (200, [-3])
    assert call(served, "POST", COMPLETIONS, BODY).status == 429
    refused = call(app(FakeLLM()), "POST", COMPLETIONS, BODY | {"priority": -3})
    assert (refused.status, refused.json["error"]["param"]) == (400, "priority")
    assert "start the server with --priority" in refused.json["error"]["message"]


class Ranked(FakeLLM):
    """Three requests wait, as urgent as any without a priority."""

    def __init__(self) -> None:
        super().__init__()
        self.stats = Stats(waiting=3)

    def waiting_before(self, priority: int) -> int:
        return 3 * (priority >= 0)


ORIGIN = {"origin": "https://page.example", "access-control-request-method": "POST"}


def test_other_origins_are_refused_unless_named() -> None:
    assert "access-control-allow-origin" not in complete(FakeLLM(), ORIGIN).headers
    assert call(app(), "OPTIONS", COMPLETIONS, headers=ORIGIN).status == 405
    named: dict[str, Any] = {"allowed_origins": ("https://page.example",), "api_key": ("k",)}
    allowed = call(app(**named), "OPTIONS", COMPLETIONS, headers=ORIGIN)
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, "https://page.example")
    other = call(app(**named), "OPTIONS", COMPLETIONS, headers=ORIGIN | {"origin": "https://other.example"})
    assert other.status == 400
    refused = complete(FakeLLM(), ORIGIN, **named)  # a page must be able to read why
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "https://page.example")
