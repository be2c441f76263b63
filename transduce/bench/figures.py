"""What is computed of records: throughput, latencies, goodput. Pure functions of recorded times."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from transduce.bench.records import Record
from transduce.errors import ConfigError

GOALS = ("ttft", "tpot", "e2e")
"""What goodput may be asked of; `e2el` is vLLM's name for the last."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, median and 99th percentile."""

    mean: float
    median: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """None where there are no values."""
        if not values:
            return None
        return cls(float(np.mean(values)), float(np.median(values)), float(np.percentile(values, 99)))


@dataclass(frozen=True, slots=True)
class Figures:
    """One level's. Latencies are in milliseconds, rates per second from the first begin to the last end.

    None: not known, as tokens are where the server does not count them, or not asked. goodput: requests that meet
    every goal. errors: how many requests failed with each message. Failed requests count in `failed` and in `duration`
    alone.
    """

    completed: int
    failed: int
    duration: float
    prompt_tokens: int | None
    output_tokens: int | None
    audio_seconds: float
    request_throughput: float
    goodput: float | None
    output_throughput: float | None
    total_throughput: float | None
    audio_throughput: float | None
    ttft: Spread | None
    tpot: Spread | None
    itl: Spread | None
    e2e: Spread | None
    errors: Mapping[str, int]


def figures(records: Sequence[Record], goals: Mapping[str, float] | None = None) -> Figures:
    """Of at least one record. goals: the most milliseconds of some of GOALS."""
    done = [record for record in records if record.error is None]
    duration = max(record.ended for record in records) - min(record.begun for record in records)
    prompt = _sum([record.prompt_tokens for record in done])
    output = _sum([record.output_tokens for record in done])
    audio = sum(record.audio_seconds for record in done)
    good = sum(_meets(record, goals) for record in done) if goals else None

    def rate(amount: float | None) -> float | None:
        return None if amount is None else amount / duration

    return Figures(
        completed=len(done),
        failed=len(records) - len(done),
        duration=duration,
        prompt_tokens=prompt,
        output_tokens=output,
        audio_seconds=audio,
        request_throughput=len(done) / duration,
        goodput=rate(good),
        output_throughput=rate(output),
        total_throughput=rate(None if prompt is None or output is None else prompt + output),
        audio_throughput=rate(audio or None),
        ttft=_spread(record.ttft for record in done),
        tpot=_spread(record.tpot for record in done),
        itl=_spread(gap for record in done for gap in record.itls),
        e2e=_spread(record.e2e for record in done),
        errors=dict(Counter(record.error for record in records if record.error is not None)),
    )


def parse_goals(texts: Sequence[str]) -> dict[str, float]:
    """`ttft:500`, `e2e:2000` as milliseconds by name. Raises ConfigError for others."""
    goals: dict[str, float] = {}
    for text in texts:
        name, _, most = text.partition(":")
        name = "e2e" if name == "e2el" else name
        if name not in GOALS or not most.replace(".", "", 1).isdecimal():
            raise ConfigError(f"goodput {text!r}: give {', '.join(GOALS)} and its most milliseconds, such as ttft:500")
        goals[name] = float(most)
    return goals


def _meets(record: Record, goals: Mapping[str, float]) -> bool:
    """Whether no latency exceeds its goal; one that a request does not have, as an answer of one token has no TPOT,
    does not.
    """
    return all(_within(getattr(record, name), most) for name, most in goals.items())


def _within(seconds: float | None, most: float) -> bool:
    return seconds is None or 1e3 * seconds <= most


def _spread(seconds: Iterable[float | None]) -> Spread | None:
    return Spread.of([1e3 * each for each in seconds if each is not None])


def _sum(counts: Sequence[int | None]) -> int | None:
    """None where nothing was counted, or not everything."""
    return sum(count for count in counts if count is not None) if counts and None not in counts else None
