"""Sample: continuations of samples, and when a hypothesis ends."""

from dataclasses import replace

import pytest

from tests.core.requests import SAMPLING, request
from transduce.core import search
from transduce.core.output import Delta, FinishReason, TokenLogprobs
from transduce.core.plan import Candidate
from transduce.core.request import Read, Stopping
from transduce.core.search.base import Continuation, Round, Row, ending


@pytest.mark.parametrize(
    ("token", "generated", "expected"),
    [
        (0, 1, ("stop", None)),
        (1, 1, ("stop", 1)),
        (2, 1, ("stop", None)),  # both: EOS names no stop token
        (3, 1, (None, None)),
        (3, 4, ("length", None)),
        (0, 4, ("stop", None)),
    ],
)
def test_endings(token: int, generated: int, expected: tuple[FinishReason | None, int | None]) -> None:
    stopping = Stopping(4, eos=frozenset([0, 2]), stop=frozenset([1, 2]))
    assert ending(stopping, token, generated) == expected


def test_the_first_round_draws_every_sample_from_one_row() -> None:
    asked = replace(request("r", width=3), logprobs=2)
    sample = search.make(asked)
    assert sample.read(4, 0, 0) == Read(4, "lm", SAMPLING, (0, 1, 2), 2)
    assert sample.read(5, 2, 1) == Read(5, "lm", SAMPLING, (2,), 2)


def test_a_greedy_read_asks_for_the_best_token() -> None:
    assert search.make(request("r")).read(0, 0, 0) == Read(0)


def test_each_candidate_continues_its_row_until_it_ends() -> None:
    sample = search.make(request("r", width=2, max_tokens=2))
    candidates = (Candidate(5, None), Candidate(6, None))
    survivors = [Continuation(7, 0, 5), Continuation(7, 1, 6)]
    assert sample.advance({7: Row((0, 1), 0, candidates, None)}) == Round(survivors, [Delta(0, [5]), Delta(1, [6])])
    assert sample.advance({8: Row((1,), 1, candidates[:1], None)}) == Round([], [Delta(1, [5], [], "length")])


def test_a_row_without_candidates_is_an_error_of_its_answers() -> None:
    failed = search.make(request("r", width=2)).advance({1: Row((0, 1), 0, (), None)})
    assert failed == Round([], [Delta(0, finish_reason="error"), Delta(1, finish_reason="error")])


@pytest.mark.parametrize("top", [(), ((4, -0.1),)])
def test_logprobs_are_reported_when_asked_for(top: tuple[tuple[int, float], ...]) -> None:
    (delta,) = search.make(request("r")).advance({1: Row((0,), 0, (Candidate(5, -0.5),), top)}).deltas
    assert delta.logprobs == [TokenLogprobs(5, -0.5, top)]
