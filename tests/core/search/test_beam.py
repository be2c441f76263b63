"""Beam: what lives on, what has ended, when it is over, and what the user hears meanwhile.

That it finds what transformers' beam search finds is tested where there are models.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.core.requests import SAMPLING, request
from transduce.core import search
from transduce.core.output import Delta, TokenLogprobs
from transduce.core.plan import Candidate
from transduce.core.request import Beams, Read, Request, Stopping
from transduce.core.search.base import Continuation, Round, Row, Search

END, STOP = 9, 8


def asked(width: int, max_tokens: int = 10, **beams: object) -> Request:
    """A request for `width` beams that end at END."""
    return replace(
        request("r", width=width),
        sampling=None,
        stopping=Stopping(max_tokens, frozenset([END]), frozenset([STOP])),
        beams=Beams(**beams),  # type: ignore[arg-type]
    )


def play(beam: Search, generated: int, *rows: Sequence[tuple[int, float]]) -> Round:
    """A round in which the live hypothesis of rank i, of seq_id 100 + i, has the candidates rows[i]."""
    candidates = (tuple(Candidate(*pair) for pair in row) for row in rows)
    return beam.advance({100 + i: Row((i,), generated, row, None) for i, row in enumerate(candidates)})


def test_a_read_asks_for_all_that_may_matter() -> None:
    beam = search.make(replace(asked(4), logprobs=2))
    assert beam.read(3, 1, 2) == Read(3, "lm", None, (1,), 2, beams=4 + 2)
    sampling = replace(SAMPLING, keep=3)
    drawing = search.make(replace(asked(4), sampling=sampling))
    assert drawing.read(3, 1, 2) == Read(3, "lm", sampling, (1,), None, beams=4 * 3)


def test_the_best_candidates_of_all_live_on_and_their_rank_is_their_index() -> None:
    beam = search.make(asked(2))
    play(beam, 0, [(1, -1.0), (2, -2.0)])
    result = play(beam, 1, [(3, -4.0), (4, -5.0)], [(5, -0.5), (6, -1.5)])
    assert result.survivors == [Continuation(101, 0, 5), Continuation(101, 1, 6)]


def test_ties_go_to_the_better_parent_and_then_to_the_lower_token() -> None:
    beam = search.make(asked(3))
    assert [c.token for c in play(beam, 0, [(7, -1.0), (2, -1.0), (5, -1.0)]).survivors] == [2, 5, 7]
    again = play(beam, 1, [(4, -1.0)], [(3, -1.0), (1, -1.0)], [(0, -1.0)])
    assert again.survivors == [Continuation(100, 0, 4), Continuation(101, 1, 1), Continuation(101, 2, 3)]


def test_an_end_counts_only_among_the_best() -> None:
    beam = search.make(asked(2, early_stopping=True))
    result = play(beam, 0, [(1, -1.0), (2, -2.0), (END, -3.0)])
    assert [c.token for c in result.survivors] == [1, 2]
    over = play(beam, 1, [(END, -1.0), (3, -9.0)], [(END, -1.0), (4, -9.0)])
    assert over == Round([], [Delta(0, [1, END], [], "stop", None, -2.0, -1.0)])


@pytest.mark.parametrize(("penalty", "best"), [(0.0, [END]), (1.0, [1, 2, END]), (-1.0, [END])])
def test_the_length_penalty_ranks_what_has_ended(penalty: float, best: list[int]) -> None:
    beam = search.make(asked(2, length_penalty=penalty, early_stopping=True))
    play(beam, 0, [(END, -1.5), (1, -1.0), (3, -5.0)])
    play(beam, 1, [(2, -0.5), (4, -5.0)], [(5, -8.0)])
    (delta,) = play(beam, 2, [(END, -0.5), (6, -5.0)], [(7, -9.0)]).deltas
    total = -1.5 if best == [END] else -2.0
    assert (delta.total, delta.score) == (total, total / len(best) ** penalty)


def ended_after(penalty: float, early_stopping: object) -> int:
    """Rounds until it is over, where the two best end at once and each further token costs 0.1."""
    beam = search.make(asked(2, 20, length_penalty=penalty, early_stopping=early_stopping))
    play(beam, 0, [(1, -1.0), (2, -1.0)])
    result = play(beam, 1, [(END, -1.0), (1, -1.5)], [(END, -1.0), (2, -1.5)])
    rounds = 2
    while result.survivors:
        result = play(beam, rounds, [(1, -0.1)], [(1, -0.1)])
        rounds += 1
    return rounds


@pytest.mark.parametrize(
    ("penalty", "early_stopping", "rounds"),
    [
        (1.0, True, 2),
        (0.0, False, 2),
        (0.0, "never", 2),
        (-1.0, "never", 2),
        (1.0, False, 2),  # -2.5 / 2 so far, against -2 / 2
        (1.0, "never", 20),  # -2.5 / 20 at the best, against -2 / 2
        (2.0, "never", 20),
    ],
)
def test_when_it_is_over(penalty: float, early_stopping: object, rounds: int) -> None:
    assert ended_after(penalty, early_stopping) == rounds


@pytest.mark.parametrize(("patience", "rounds"), [(0.1, 1), (0.5, 1), (1.0, 2), (1.4, 3), (2.0, 4)])
def test_patience_waits_for_more_or_fewer_ends(patience: float, rounds: int) -> None:
    beam = search.make(asked(2, early_stopping=True, patience=patience))
    played, result = 0, Round([Continuation(0, 0, 0)])
    while result.survivors:
        rows = [[(END, -0.1), (1, -0.2), (2, -0.3)], [(3, -9.0)]][: len(result.survivors)]
        result = play(beam, played, *rows)  # one ends in each
        played += 1
    assert played == rounds
    assert len(result.deltas) == 1


def test_the_longest_end_of_length() -> None:
    beam = search.make(asked(2, max_tokens=2, answers=2))
    play(beam, 0, [(1, -1.0), (2, -2.0)])
    assert play(beam, 1, [(3, -1.0), (STOP, -2.0)], [(4, -9.0)]).deltas == [
        Delta(0, [1, 3], [], "length", None, -2.0, -1.0),
        Delta(1, [1, STOP], [], "stop", STOP, -3.0, -1.5),
    ]


def test_what_all_share_is_told_at_once_and_the_rest_at_the_end() -> None:
    beam = search.make(replace(asked(2, answers=2, max_tokens=4), logprobs=0))
    told = [
        play(beam, 0, [(1, -1.0), (2, -2.0)]).deltas,
        play(beam, 1, [(3, -0.1), (4, -0.2)], [(5, -9.0)]).deltas,  # both begin with 1
        play(beam, 2, [(5, -0.1), (END, -0.2), (6, -0.3)], []).deltas,  # and so does what has ended: 1, 3
        play(beam, 3, [(6, -0.1), (7, -9.0)], [(7, -9.0)]).deltas,
    ]
    tokens = [[(delta.index, delta.tokens) for delta in deltas] for deltas in told]
    assert tokens == [[], [(0, [1])], [(0, [3])], [(0, [5, 6]), (1, [1, 3, END])]]


def test_logprobs_follow_their_tokens() -> None:
    beam = search.make(replace(asked(2, max_tokens=1), logprobs=1))
    (delta,) = beam.advance({1: Row((0,), 0, (Candidate(5, -0.5), Candidate(6, -1.0)), ((5, -0.5),))}).deltas
    assert delta.logprobs == [TokenLogprobs(5, -0.5, ((5, -0.5),))]


def test_where_nothing_can_follow_what_has_ended_is_the_answer() -> None:
    beam = search.make(asked(3, answers=3))
    play(beam, 0, [(1, -1.0), (END, -2.0)])
    assert play(beam, 1, []) == Round([], [Delta(0, [END], [], "stop", None, -2.0, -2.0)])


def test_where_nothing_can_follow_and_nothing_has_ended_is_an_error() -> None:
    beam = search.make(asked(2, answers=2))
    play(beam, 0, [(1, -1.0), (2, -2.0)])
    assert play(beam, 1, [], []) == Round([], [Delta(0, finish_reason="error")])


def test_a_row_without_candidates_is_only_the_end_of_its_hypothesis() -> None:
    beam = search.make(asked(2))
    play(beam, 0, [(1, -1.0), (2, -2.0)])
    assert play(beam, 1, [], [(3, -1.0)]).survivors == [Continuation(101, 0, 3)]


def test_drawn_candidates_are_chosen_by_noise_and_ranked_without() -> None:
    beam = search.make(replace(asked(1), sampling=replace(SAMPLING, keep=2)))
    row = (Candidate(1, -1.0, 0.0), Candidate(2, -5.0, 9.0), Candidate(3, -3.0, 5.0), Candidate(4, -2.0, -1.0))
    assert beam.advance({7: Row((0,), 0, row, None)}).survivors == [Continuation(7, 0, 3)]


@pytest.mark.parametrize(("answers", "idle"), [(1, True), (2, False)])
def test_a_cut_answer_leaves_the_search_idle_if_it_is_the_only_one(answers: int, idle: bool) -> None:
    assert search.make(asked(2, answers=answers)).serves(1, 0) == idle
