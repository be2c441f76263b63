"""`transduce bench serve`: a running server, at one level of load after another."""

import re
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

HINTS = (
    (r"HTTP 40[13]", "give a key with --api-key, or in OPENAI_API_KEY"),
    (r"messages", "chats are not measured; give no --endpoint, or one of completions or transcriptions"),
    (
        r"ignore_eos|skip_special_tokens",
        "random texts ask for this extension; --dataset-name jsonl sends your own fields",
    ),
    (r"(?i)vocabulary|token id:? \d", "random texts are token ids below --vocab-size; give one that the model has"),
    (
        r"(?i)too long|(context|model) length|the model takes",
        "--input-len and --output-len say how long random texts are",
    ),
    (r"stream", "--no-stream asks for whole answers"),
    (r"HTTP 40[45]", "--endpoint and --dataset-name choose where requests go, --model whom they name"),
)
"""What of the flags may be at fault where an error has the words; the first counts."""


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
        raise RequestError(
            f"{url} names no model (status {response.status_code}); check --base-url, or give --model"
        ) from error


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
        call = style.call(item)
        record = await send(client, call, 0.0)
        if record.error is not None:
            url = f"{str(client.base_url).rstrip('/')}{call.path}"
            raise RequestError(f"{url}: a first request failed: {record.error}{_hint(record.error)}")
    outcomes = []
    for level in levels:
        calls = [style.call(item) for item in draw()]
        with Bar(len(calls), shown=True) as bar:
            records = await run(client, calls, level, rng, partial(_count, bar))
        outcomes.append(Outcome(level, records, figures(records, goals)))
    return outcomes


def _hint(error: str) -> str:
    return next((f" ({hint})" for words, hint in HINTS if re.search(words, error)), "")


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
