"""Load: when requests are sent, how many at once, and what comes back."""

import asyncio
from collections.abc import Callable
from math import inf
from threading import Barrier, Lock

import httpx
import numpy as np
import pytest

from tests.bench.support import Answer, Posted, completion, event, serving
from transduce.bench.calls import Style
from transduce.bench.datasets import Text
from transduce.bench.load import Level, connection, parse_levels, run
from transduce.bench.records import Record
from transduce.errors import ConfigError

TEXTS = [Text([7] * (1 + index), {"max_tokens": 3}) for index in range(8)]


def load(url: str, level: Level, stream: bool = True, on_end: Callable[[Record], object] = id) -> list[Record]:
    async def measure() -> list[Record]:
        calls = [Style("fake", stream).call(text) for text in TEXTS]
        async with connection(url, "secret", 60) as client:
            return await run(client, calls, level, np.random.default_rng(0), lambda record: (on_end(record), None)[1])

    return asyncio.run(measure())


@pytest.mark.parametrize("level", [Level(), Level(concurrency=3), Level(2_000.0), Level(2_000.0, 2)])
@pytest.mark.parametrize("stream", [True, False])
def test_every_request_has_its_record(level: Level, stream: bool) -> None:
    ended: list[Record] = []
    with serving(completion) as fake:
        records = load(fake.url, level, stream, ended.append)
    assert [record.error for record in records] == [None] * 8
    assert [record.prompt_tokens for record in records] == [*range(1, 9)]
    assert [record.output_tokens for record in records] == [3] * 8
    assert [len(record.texts) for record in records] == [3 * stream] * 8
    assert all(record.begun <= min(record.texts, default=record.ended) <= record.ended for record in records)
    assert sorted(ended, key=id) == sorted(records, key=id)
    assert len(fake.posted) == 8
    assert {posted.headers["authorization"] for posted in fake.posted} == {"Bearer secret"}


def test_a_closed_loop_keeps_so_many_in_flight_and_no_more() -> None:
    inside, most, lock, together = 0, 0, Lock(), Barrier(4, timeout=60)

    def answer(posted: Posted) -> Answer:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        together.wait()
        with lock:
            inside -= 1
        return completion(posted)

    with serving(answer) as fake:
        records = load(fake.url, Level(concurrency=4), stream=False)
    assert [record.error for record in records] == [None] * 8
    assert most == 4


def test_failures_are_records_and_the_others_go_on() -> None:
    def answer(posted: Posted) -> Answer:
        match len(posted.body["prompt"]):
            case 1:
                return Answer([b'{"error": {"message": "busy"}}'], status=429)
            case 2:
                return Answer([event({"choices": [{"text": "a"}]})], "text/event-stream", whole=False)
            case 3:
                return Answer([b"hello"])
            case _:
                return completion(posted)

    with serving(answer) as fake:
        errors = [record.error for record in load(fake.url, Level(concurrency=1))]
    assert errors[0] == "HTTP 429: busy"
    assert "RemoteProtocolError" in str(errors[1])
    assert "not an answer of OpenAI's form" in str(errors[2])
    assert errors[3:] == [None] * 5


def test_a_server_that_is_not_there() -> None:
    with serving(completion) as fake:
        pass
    assert {str(record.error).split(":")[0] for record in load(fake.url, Level())} == {"ConnectError"}


def test_times_begin_when_requests_are_due() -> None:
    level = Level(5_000.0)
    with serving(completion) as fake:
        records = load(fake.url, level)
    gaps = np.diff([record.begun for record in records])
    assert gaps == pytest.approx(np.diff(level.dues(8, np.random.default_rng(0))), abs=1e-9)


def test_arrivals_are_a_poisson_process() -> None:
    gaps = np.diff(Level(4.0).dues(20_000, np.random.default_rng(0)))
    assert gaps.min() >= 0
    assert np.mean(gaps) == pytest.approx(0.25, rel=0.02)
    assert np.std(gaps) == pytest.approx(0.25, rel=0.02)
    assert Level().dues(3, np.random.default_rng(0)) == [0.0, 0.0, 0.0]


def test_lists_sweep() -> None:
    assert parse_levels("1,2.5,inf", None) == [Level(1.0), Level(2.5), Level(inf)]
    assert parse_levels("inf", "1,8,8") == [Level(inf, 1), Level(inf, 8)]
    assert [str(level) for level in parse_levels("2,inf", "4")] == ["2/s, 4 clients", "4 clients"]
    assert str(Level()) == "all at once"


@pytest.mark.parametrize(
    ("rates", "clients", "complaint"),
    [
        ("x", None, "could not convert string to float: 'x'; give numbers"),
        ("inf", "1.5", "give numbers, separated by commas"),
        ("0", None, "request rate 0: give requests per second, or inf"),
        ("nan", None, "request rate nan"),
        ("inf", "0", "concurrency 0: give at least 1"),
    ],
)
def test_levels_that_are_refused(rates: str, clients: str | None, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_levels(rates, clients)


@pytest.mark.parametrize("url", ["localhost:8000", "", "/v1", "ftp://host", "http://"])
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="give one such as http"):
        connection(url, None, 60)


def test_a_client_asks_for_no_compression() -> None:
    client = connection("http://host", None, 60)
    assert isinstance(client, httpx.AsyncClient)
    assert client.headers["accept-encoding"] == "identity"
    assert "authorization" not in client.headers
