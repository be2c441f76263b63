"""Attempts at one window: which are believed, and at which temperature the next is."""

import math
from typing import Any

import pytest

from tests.speech.attempts import attempt, output
from transduce.core.params import BeamSearchParams, SamplingParams
from transduce.errors import RequestError
from transduce.frontend.dialogue import Done, Work, advance
from transduce.frontend.frontend import Params
from transduce.speech.fallback import Attempt, Fallback, Reader, decoded

READER = Reader(lambda tokens: "".join(chr(97 + token) for token in tokens), frozenset({25}))
UNLIKELY = -20.0


@pytest.mark.parametrize(
    ("fields", "again", "silent"),
    [
        ({}, False, False),
        ({"compression_ratio": 2.5}, True, False),
        ({"avg_logprob": -1.1}, True, False),
        ({"avg_logprob": -1.1, "no_speech_prob": 0.7}, False, True),
        ({"avg_logprob": -1.1, "no_speech_prob": 0.7, "compression_ratio": 2.5}, False, True),
        ({"no_speech_prob": 0.7}, False, False),
        ({"no_speech_prob": 0.7, "compression_ratio": 2.5}, True, False),
        ({"avg_logprob": -1.1, "output": output(error="the step failed")}, False, False),
    ],
)
def test_what_is_believed(fields: dict[str, Any], again: bool, silent: bool) -> None:
    judged = attempt(**fields)
    assert (Fallback().again(judged), Fallback().silent(judged)) == (again, silent)
    off = Fallback(compression_ratio_threshold=None, logprob_threshold=None, no_speech_threshold=None)
    assert not off.again(judged)
    assert not off.silent(judged)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"temperatures": ()}, "give at least one"),
        ({"temperatures": 0.2}, "temperatures=0.2: give a list"),
        ({"temperatures": (0.0, -1.0)}, "temperatures=-1.0: give 0"),
        ({"logprob_threshold": math.nan}, "logprob_threshold=nan: give a number"),
        ({"compression_ratio_threshold": "2"}, "compression_ratio_threshold='2': give a number"),
        ({"no_speech_threshold": math.nan}, "no_speech_threshold=nan: give a number"),
    ],
)
def test_refusals(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Fallback(**asked)


def test_without_a_log_probability_to_compare_silence_is_enough() -> None:
    assert Fallback(logprob_threshold=None).silent(attempt(no_speech_prob=0.7))


def run(params: Params, *totals: float) -> tuple[list[Params], Attempt]:
    """What is asked, and what is taken of attempts with those log-probabilities."""
    asked: list[Params] = []

    def ask(params: Params) -> Work:
        asked.append(params)
        return Work("window", params)

    dialogue = decoded(ask, params, Fallback(), READER)
    said = advance(dialogue, None)
    for total in totals:
        assert not isinstance(said, Done)
        said = advance(dialogue, [output((1, 2, 25), total, 0.25)])
    assert isinstance(said, Done)
    return asked, said.result


def test_an_attempt_is_measured_without_the_token_that_ends_it() -> None:
    asked, taken = run(SamplingParams(), -1.5)
    assert asked == [SamplingParams(temperature=0.0)]
    assert (taken.tokens, taken.text, taken.avg_logprob, taken.no_speech_prob) == ((1, 2), "bc", -0.5, 0.25)
    assert math.isclose(taken.compression_ratio, 2 / 10)


@pytest.mark.parametrize(
    ("params", "cold", "warm"),
    [
        (
            SamplingParams(top_p=0.9, best_of=3, seed=7),
            {"top_p": 0.9, "seed": 7},
            {"top_p": 0.9, "best_of": 3, "seed": 7},
        ),
        (SamplingParams(max_tokens=5), {"max_tokens": 5}, {"max_tokens": 5, "seed": 0}),
    ],
)
def test_the_next_attempt_is_warmer(params: Params, cold: dict[str, Any], warm: dict[str, Any]) -> None:
    asked, taken = run(params, UNLIKELY, UNLIKELY, -0.1)
    assert asked[0] == SamplingParams(temperature=0.0, **cold)
    assert asked[1:] == [SamplingParams(temperature=temperature, **warm) for temperature in (0.2, 0.4)]
    assert taken.temperature == 0.4


def test_beams_are_for_the_first_attempt() -> None:
    asked, taken = run(BeamSearchParams(beam_width=4, max_tokens=5), *[UNLIKELY] * 6)
    assert asked[0] == BeamSearchParams(beam_width=4, max_tokens=5)
    assert asked[5] == SamplingParams(temperature=1.0, max_tokens=5, seed=0)
    assert (len(asked), taken.temperature) == (6, 1.0)


def test_a_temperature_of_the_users_is_the_only_one() -> None:
    params = SamplingParams(temperature=0.3)
    asked, taken = run(params, UNLIKELY)
    assert (asked, taken.temperature) == ([params], 0.3)
