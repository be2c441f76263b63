"""Load: calls sent to a server at a rate, or by so many clients, all from one event loop.

Owns the clock. It shares the machine with the server that it measures, so while a request runs it only notes what
arrives; answers are read when they are complete.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from math import inf
from time import perf_counter

import httpx
import numpy as np

from transduce.bench.calls import Call
from transduce.bench.records import Record, read
from transduce.errors import ConfigError

LAST_PORT = 65_535
CONNECT = 10.0
"""Seconds that a connection may take."""


@dataclass(frozen=True, slots=True)
class Level:
    """One intensity of load.

    request_rate: requests per second, arriving as a Poisson process; inf: all at the start. concurrency: most requests
    at one time, of which the others wait unsent; None: any number. A rate of inf with a concurrency is a closed loop:
    so many clients, each of which sends its next request once it has its answer.
    """

    request_rate: float = inf
    concurrency: int | None = None

    def __post_init__(self) -> None:
        if not self.request_rate > 0:
            raise ConfigError(f"request rate {self.request_rate:g}: give requests per second, or inf")
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError(f"concurrency {self.concurrency}: give at least 1")

    def __str__(self) -> str:
        rate = "" if self.request_rate == inf else f"{self.request_rate:g}/s"
        plural = "" if self.concurrency == 1 else "s"
        most = "" if self.concurrency is None else f"{self.concurrency} client{plural}"
        return ", ".join(filter(None, (rate, most))) or "all at once"

    def dues(self, count: int, rng: np.random.Generator) -> list[float]:
        """When each of `count` requests arrives, in seconds from the start."""
        if self.request_rate == inf:
            return [0.0] * count
        return list(accumulate(rng.exponential(1 / self.request_rate, count)))


def parse_levels(rates: str, concurrencies: str | None) -> list[Level]:
    """Every pair of `1,2,inf` and `8,32`; None: no bound. Raises ConfigError for what are no such lists."""
    try:
        clients = [int(number) for number in concurrencies.split(",")] if concurrencies is not None else [None]
        pairs = product([float(number) for number in rates.split(",")], clients)
    except ValueError as error:
        raise ConfigError(f"{error}; give numbers, separated by commas") from error
    return [Level(*pair) for pair in dict.fromkeys(pairs)]


def connection(base_url: str, api_key: str | None, timeout: float) -> httpx.AsyncClient:
    """A client of the server at `base_url`, of any number of connections. /v1 at its end is in the paths already.

    timeout: seconds that a server may be silent. Raises ConfigError for what is no URL.
    """
    headers = {b"accept-encoding": b"identity"}
    if api_key:
        headers[b"authorization"] = f"Bearer {api_key}".encode()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    patience = httpx.Timeout(timeout, connect=CONNECT)
    root = base_url.rstrip("/").removesuffix("/v1")
    client = httpx.AsyncClient(base_url=root, headers=headers, limits=limits, timeout=patience)
    url = client.base_url
    if url.scheme not in {"http", "https"} or not url.host or not 0 < (url.port or 80) <= LAST_PORT:
        raise ConfigError(f"base URL {base_url!r}: give one such as http://127.0.0.1:8000")
    return client


async def run(
    client: httpx.AsyncClient,
    calls: Sequence[Call],
    level: Level,
    rng: np.random.Generator,
    on_end: Callable[[Record], None],
) -> list[Record]:
    """Send all calls; their records, in the order of the calls. on_end is told each as it ends.

    A request's time begins when it is due, though this process were late to send it; with a concurrency, when there
    is a place for it.
    """
    places = asyncio.Semaphore(level.concurrency or len(calls))
    start = perf_counter()

    async def one(call: Call, due: float) -> Record:
        try:
            record = await send(client, call, due if level.concurrency is None else perf_counter())
        finally:
            places.release()
        on_end(record)
        return record

    async with asyncio.TaskGroup() as group:
        tasks = []
        for call, offset in zip(calls, level.dues(len(calls), rng), strict=True):
            await asyncio.sleep(max(0.0, start + offset - perf_counter()))
            await places.acquire()
            tasks.append(group.create_task(one(call, start + offset)))
    return [task.result() for task in tasks]


async def send(client: httpx.AsyncClient, call: Call, begun: float) -> Record:
    """One exchange. What goes wrong is in the record."""
    try:
        async with client.stream("POST", call.path, headers=call.headers, content=call.content) as response:
            arrivals = [(perf_counter(), content) async for content in response.aiter_raw()]
    except httpx.HTTPError as error:
        return Record(begun, perf_counter(), error=f"{type(error).__name__}: {error}")
    media_type = response.headers.get("content-type", "").partition(";")[0].strip()
    record = read(begun, arrivals, perf_counter(), response.status_code, media_type)
    return replace(record, audio_seconds=call.audio_seconds)
