"""Figures: computed of times that are made up."""

from dataclasses import astuple, replace

import pytest

from transduce.bench.figures import Spread, figures, parse_goals
from transduce.bench.records import Record
from transduce.errors import ConfigError

FIRST = Record(10.0, 14.0, (11.0, 12.0, 14.0), prompt_tokens=7, output_tokens=4)
SECOND = Record(11.0, 15.0, (14.0, 15.0), prompt_tokens=5, output_tokens=2)
FAILED = Record(12.0, 20.0, error="HTTP 500: no")


def spread(found: Spread | None) -> tuple[float, ...]:
    assert found is not None
    return astuple(found)


def test_rates_and_latencies() -> None:
    found = figures([FIRST, SECOND, FAILED])
    assert (found.completed, found.failed, found.duration) == (2, 1, 10.0)
    assert (found.prompt_tokens, found.output_tokens) == (12, 6)
    assert (found.request_throughput, found.output_throughput, found.total_throughput) == (0.2, 0.6, 1.8)
    assert spread(found.ttft) == pytest.approx((2000, 2000, 2980))
    assert spread(found.tpot) == pytest.approx((1000, 1000, 1000))
    assert spread(found.itl) == pytest.approx((4000 / 3, 1000, 1980))
    assert spread(found.e2e) == pytest.approx((4000, 4000, 4000))
    assert found.errors == {"HTTP 500: no": 1}
    assert (found.goodput, found.audio_throughput) == (None, None)


def test_goodput_counts_requests_that_meet_every_goal() -> None:
    records = [FIRST, SECOND, FAILED]
    assert figures(records, {"ttft": 1000.0}).goodput == 0.1
    assert figures(records, {"e2e": 4000.0}).goodput == 0.2
    assert figures(records, {"e2e": 4000.0, "ttft": 999.0}).goodput == 0.0


def test_what_a_request_does_not_have_it_cannot_miss() -> None:
    assert figures([replace(FIRST, texts=())], {"ttft": 1.0, "tpot": 1.0}).goodput == 0.25


def test_tokens_are_known_only_where_all_are() -> None:
    found = figures([FIRST, replace(SECOND, output_tokens=None)])
    assert (found.output_tokens, found.output_throughput, found.total_throughput) == (None, None, None)
    assert found.prompt_tokens == 12


def test_audio() -> None:
    found = figures([replace(FIRST, audio_seconds=30.0), replace(SECOND, audio_seconds=20.0)])
    assert (found.audio_seconds, found.audio_throughput) == (50.0, 10.0)


def test_where_all_failed() -> None:
    found = figures([FAILED, FAILED])
    assert (found.completed, found.failed, found.errors) == (0, 2, {"HTTP 500: no": 2})
    assert (found.ttft, found.e2e, found.output_tokens, found.request_throughput) == (None, None, None, 0.0)


def test_goals_are_as_vllm_writes_them() -> None:
    assert parse_goals(["ttft:500", "tpot:1.5", "e2el:2000"]) == {"ttft": 500.0, "tpot": 1.5, "e2e": 2000.0}


@pytest.mark.parametrize("text", ["", "ttft", "ttft:", "ttft:x", "itl:5", "ttft:-1", "ttft:inf", "ttft:1.2.3"])
def test_goals_that_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"goodput '{text}': give ttft, tpot, e2e and its most milliseconds"):
        parse_goals([text])
