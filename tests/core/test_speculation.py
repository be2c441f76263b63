"""Where a drafter looks, what is learnt of its guesses, and how long drafts become."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.core.requests import SAMPLING, request
from transduce.core.request import Beams
from transduce.core.speculation import FIRST_RATES, LEAST, MOST, NEAR, STEP_ROWS, Drafter, Speculation

START = 0
SOURCE = list(range(10, 40))


def drafter(source: Sequence[int] = SOURCE, prompt: Sequence[int] = (START,)) -> Drafter:
    return Drafter(source, prompt, lambda token: token > START)


def after(tokens: Sequence[int], source: Sequence[int] = SOURCE) -> list[int]:
    """The next three guesses."""
    reading = drafter(source)
    for token in tokens:
        reading.see(token)
    return reading.ahead(3)


def test_the_source_is_guessed_from_its_start() -> None:
    assert drafter().ahead(3) == [10, 11, 12]
    assert drafter(prompt=(START, 20, 21)).ahead(3) == [22, 23, 24]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param([10, 11, 90], [13, 14, 15], id="one replaced"),
        pytest.param([10, 11, 90, 13], [14, 15, 16], id="and it goes on"),
        pytest.param([10, 11, 90, 12], [13, 14, 15], id="one inserted"),
        pytest.param([10, 11, 90, 91, 92, 12], [13, 14, 15], id="three inserted"),
        pytest.param([10, 11, 15], [16, 17, 18], id="three left out"),
        pytest.param([10, 11, 12 + NEAR + 1], [13, 14, 15], id="one token far off tells nothing"),
        pytest.param([10, 11, 30, 31], [32, 33, 34], id="two tell"),
        pytest.param([90, 91, 92, 93, 90, 91], [92, 93, 90], id="in the output itself"),
    ],
)
def test_the_place_is_found_again(tokens: Sequence[int], expected: Sequence[int]) -> None:
    assert after(tokens) == expected


def test_the_nearest_of_several_places() -> None:
    text = [10, 11, 12, 1, 2, 20, 21, 22, 1, 2, 30, 31, 32, 1, 2, 40]
    assert after([10, 11, 12, 20, 90, 1, 2], text) == [30, 31, 32]


def test_drafts_end_before_tokens_of_no_use() -> None:
    ended = replace(request("r", rows=3, max_tokens=9), inputs=())
    ended = replace(ended, stopping=replace(ended.stopping, eos=frozenset({5}), stop=frozenset({6})))
    for useless in (5, 6, 50):
        found = Speculation(50, lambda rows: rows).drafter(replace(ended, prompt=(1, 7, 8, useless, 1, 7)))
        assert found is not None
        assert found.ahead(9) == [8]


@pytest.mark.parametrize(
    ("asked", "drafts"),
    [
        (request("greedy", rows=2), True),
        (replace(request("sampled", rows=2), sampling=SAMPLING), True),
        (request("several", rows=2, width=2), False),
        (replace(request("beams", rows=2), width=3, beams=Beams()), False),
        (replace(request("a beam", rows=2), beams=Beams()), False),
    ],
    ids=lambda value: value.request_id if not isinstance(value, bool) else "",
)
def test_who_is_drafted_for(asked: object, drafts: bool) -> None:
    assert (Speculation(50, lambda rows: rows).drafter(asked) is not None) == drafts  # type: ignore[arg-type]


def read(speculation: Speculation, source: Sequence[int], tokens: Sequence[int]) -> Drafter:
    reading = drafter(source)
    for token in tokens:
        speculation.learn(reading, token)
    return reading


def alone(speculation: Speculation, reading: Drafter, most: int = 1000) -> int:
    """Tokens drafted in a step of one row."""
    (draft,) = speculation.draft([(reading, 1000)], 1, 1, most)
    assert draft == reading.ahead(len(draft))
    return len(draft)


def test_drafts_begin_where_they_pay_and_end_where_they_do_not() -> None:
    rng, speculation = random.Random(1), Speculation(10**6, lambda rows: rows)
    read(speculation, range(1, 400), range(1, 300))
    copying = alone(speculation, drafter(range(1, 400)))
    assert copying > alone(Speculation(10**6, lambda rows: rows), drafter(range(1, 400)))
    read(speculation, range(1, 400), [rng.randrange(1000, 10**5) for _ in range(300)])
    assert alone(speculation, drafter(range(1, 400))) == 0
    read(speculation, range(1, 400), range(1, 300))
    assert alone(speculation, read(speculation, range(1, 400), range(1, 100))) == MOST


def length(rate: float, rows: int, most: int) -> int:
    """How many guesses, each right as often, bring the most tokens in the time."""
    paces = [sum(rate**i for i in range(n + 1)) / (STEP_ROWS + rows + n) for n in range(most + 1)]
    return paces.index(max(paces))


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.8, 0.9])
def test_a_draft_is_as_long_as_brings_most_in_its_time(rate: float) -> None:
    speculation = Speculation(10**6, lambda rows: rows)
    speculation._rates = [rate] * len(FIRST_RATES)
    guessed = alone(speculation, drafter(range(1, 400)))
    assert guessed == min(length(rate, 1, MOST), sum(rate**n >= LEAST for n in range(1, MOST + 1)))
    assert alone(speculation, drafter(range(1, 400)), most=1) == 1
    assert alone(speculation, drafter(range(1, 3))) == min(2, guessed)


def test_rows_that_are_computed_anyway_are_used() -> None:
    """Steps are padded to 8, 16 or 32 rows: what it pays to fill is filled."""
    speculation = Speculation(10**6, lambda rows: 1 << (rows - 1).bit_length())
    speculation._rates = [0.3] * len(FIRST_RATES)
    eight = [(drafter(range(1, 400)), 1000) for _ in range(8)]
    assert sum(map(len, speculation.draft(eight, 8, 8, 1000))) == 8
    assert sum(map(len, speculation.draft(eight, 8, 9, 1000))) == 7


def test_the_likeliest_guesses_come_first() -> None:
    speculation = Speculation(10**6, lambda rows: rows)
    fresh, sure = drafter(range(1, 400)), drafter(range(1, 400))
    for token in range(1, 30):
        sure.see(token)
    drafts = speculation.draft([(fresh, 9), (sure, 9)], 2, 2, 4)
    assert [len(draft) for draft in drafts] == [0, 4]
    assert speculation.draft([(fresh, 9), (sure, 2)], 2, 2, 4)[1] == [30, 31]
