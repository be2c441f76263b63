"""`transduce bench serve`: a running server, at one level of load after another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import httpx
import numpy as np

from transduce.bench.calls import Style
from transduce.bench.datasets import Item
from transduce.bench.figures import Figures, figures
from transduce.bench.load import Level, run, send
from transduce.bench.records import Record
from transduce.errors import RequestError
from transduce.frontend.progress import Bar


@dataclass(frozen=True, slots=True)
class Outcome:
    """One level's records, and what is computed of them."""

    level: Level
    records: Sequence[Record]
    figures: Figures

    def document(self) -> dict[str, Any]:
        """For JSON: seconds count from the first request's begin."""
        start = min(record.begun for record in self.records)
        return {
            "request_rate": "inf" if self.level.request_rate == inf else self.level.request_rate,
            "concurrency": self.level.concurrency,
            "requests": [_row(record, start) for record in self.records],
        }


async def model_name(client: httpx.AsyncClient) -> str:
    """The first model that the server names. Raises RequestError where it names none."""
    url = f"{str(client.base_url).rstrip('/')}/v1/models"
    try:
        response = await client.get("/v1/models")
    except httpx.HTTPError as error:
        raise RequestError(f"{url} does not answer ({error}); is a server running there?") from error
    if response.status_code == httpx.codes.UNAUTHORIZED:
        raise RequestError(f"{url} asks for a key; give one with --api-key, or in OPENAI_API_KEY")
    try:
        return str(response.raise_for_status().json()["data"][0]["id"])
    except (httpx.HTTPStatusError, ValueError, LookupError, TypeError) as error:
        raise RequestError(f"{url} names no model (status {response.status_code}); give its --model") from error


async def sweep(
    client: httpx.AsyncClient,
    draw: Callable[[], Sequence[Item]],
    style: Style,
    levels: Sequence[Level],
    warmups: int,
    goals: Mapping[str, float],
    rng: np.random.Generator,
) -> list[Outcome]:
    """An outcome for each level, on inputs that are drawn for it.

    Some requests are sent one by one before. Raises RequestError where one of them fails, since all would.
    """
    for item in draw()[:warmups]:
        record = await send(client, style.call(item), 0.0)
        if record.error is not None:
            raise RequestError(f"{str(client.base_url).rstrip('/')}: a first request failed: {record.error}")
    outcomes = []
    for level in levels:
        calls = [style.call(item) for item in draw()]
        with Bar(len(calls), shown=True) as bar:
            records = await run(client, calls, level, rng, partial(_count, bar))
        outcomes.append(Outcome(level, records, figures(records, goals)))
    return outcomes


def _count(bar: Bar, record: Record) -> None:
    bar.update(1, record.prompt_tokens or 0, record.output_tokens or 0)


def _row(record: Record, start: float) -> dict[str, Any]:
    return {
        "begun": record.begun - start,
        "ended": record.ended - start,
        "ttft": record.ttft,
        "prompt_tokens": record.prompt_tokens,
        "output_tokens": record.output_tokens,
        "audio_seconds": record.audio_seconds,
        "error": record.error,
    }
