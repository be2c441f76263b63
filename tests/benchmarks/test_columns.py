import numpy as np
import pytest

from benchmarks.batches import by_count, by_tokens
from benchmarks.columns import Work, batch, parse, wanted


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_bare_number_belongs_to_the_letter_before() -> None:
    columns = parse("B=1,8,S=1000,beam=4,mixed,mixed=5")
    assert [(c.name, c.requests, c.source, c.beams) for c in columns] == [
        ("B=1", 1, 128, 1),
        ("B=8", 8, 128, 1),
        ("S=1000", 8, 1000, 1),
        ("beam=4", 8, 128, 4),
        ("mixed", 256, None, 1),
        ("mixed=5", 5, None, 1),
    ]


@pytest.mark.parametrize("text", ["8", "X=1", "B=", "B=0", "B=-1", "mixed,mixd"])
def test_what_is_no_column_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give B=N"):
        parse(text)


def test_uniform_requests_have_the_lengths_asked_for() -> None:
    work = batch(3, source=20, tokens=5).draw(100, rng())
    assert [(len(w.source), w.length) for w in work] == [(20, 5)] * 3
    assert all(4 <= token < 100 for w in work for token in w.source)
    assert wanted(work) == 15


def test_mixed_lengths_keep_to_their_distribution() -> None:
    work = parse("mixed=2000")[0].draw(100, rng())
    sources, lengths = [len(w.source) for w in work], [w.length for w in work]
    assert min(sources) >= 8
    assert max(sources) <= 900
    assert min(lengths) >= 4
    assert max(lengths) <= 256
    assert np.median(sources) == pytest.approx(96, rel=0.1)
    assert np.median(lengths) == pytest.approx(48, rel=0.1)


def test_every_draw_is_new() -> None:
    column, source = parse("B=1")[0], rng()
    assert column.draw(50_000, source) != column.draw(50_000, source)


def lengths(batches: list[list[Work]]) -> list[list[int]]:
    return [[len(w.source) for w in each] for each in batches]


def test_batches_by_count_keep_the_order_and_leave_a_rest() -> None:
    work = [Work([0] * n, 1) for n in (1, 2, 3, 4, 5)]
    assert lengths(list(by_count(work, 2))) == [[1, 2], [3, 4], [5]]


def test_batches_by_tokens_count_padding() -> None:
    work = [Work([0] * n, 1) for n in (9, 4, 4, 3, 1)]
    assert lengths(list(by_tokens(work, 8))) == [[9], [4, 4], [3, 1]]
