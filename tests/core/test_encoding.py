"""Encoding: which items run in which step."""

import pytest

from tests.core.requests import item, source
from transduce.core.blocks import BlockPool
from transduce.core.encoder_cache import EncoderCache, Entry
from transduce.core.encoding import Encoding
from transduce.core.request import EncoderInput


@pytest.fixture
def cache() -> EncoderCache:
    return EncoderCache(BlockPool(100), 2, 1)


def steps(encoding: Encoding, most: int = 9) -> list[list[int]]:
    """The costs of the items of each step, until there are no more."""
    costs: list[list[int]] = []
    while jobs := encoding.take():
        assert len(costs) < most
        costs.append([job.item.cost for job in jobs])
        encoding.commit()
        encoding.begin()
    return costs


def of_costs(content: int, *costs: int) -> EncoderInput:
    return source(*(item(content * 10 + at, cost=cost) for at, cost in enumerate(costs)))


def add(encoding: Encoding, cache: EncoderCache, *inputs: EncoderInput) -> list[Entry]:
    encoding.begin()
    entries = [cache.acquire(each) for each in inputs]
    for entry in entries:
        encoding.add(entry)
    return entries


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ([[2, 2, 2]], [[2, 2], [2]]),
        ([[3, 1], [1]], [[3, 1], [1]]),
        ([[3], [2], [1]], [[3, 1], [2]]),  # a later small one fills the step
        ([[9], [1]], [[9], [1]]),  # an oversized one runs alone
        ([[1], [9], [1]], [[1, 1], [9]]),
        ([[1, 9, 1]], [[1], [9], [1]]),
    ],
)
def test_items_fill_the_steps_in_order(cache: EncoderCache, inputs: list[list[int]], expected: list[list[int]]) -> None:
    encoding = Encoding(4)
    add(encoding, cache, *(of_costs(at, *costs) for at, costs in enumerate(inputs)))
    assert steps(encoding) == expected


def test_jobs_write_an_inputs_items_one_after_another(cache: EncoderCache) -> None:
    encoding = Encoding(4)
    (entry,) = add(encoding, cache, source(item(1, rows=3), item(2, rows=1), item(3, rows=2)))
    jobs = encoding.take()
    assert [job.start for job in jobs] == [0, 3]
    assert all(job.blocks == tuple(entry.table.blocks) for job in jobs)
    assert encoding.commit() == 4
    encoding.begin()
    assert [job.start for job in encoding.take()] == [4]
    assert encoding.commit() == 2
    assert entry.ready


def test_an_entry_is_added_once(cache: EncoderCache) -> None:
    encoding = Encoding(4)
    (entry,) = add(encoding, cache, of_costs(1, 4))
    encoding.add(entry)
    assert len(encoding.take()) == 1
    encoding.commit()
    encoding.begin()
    encoding.add(entry)
    assert encoding.take() == []


def test_what_a_step_admits(cache: EncoderCache) -> None:
    encoding = Encoding(4)
    encoding.begin()
    assert encoding.admits([of_costs(1, 9)])
    add(encoding, cache, of_costs(2, 2))
    assert encoding.admits([of_costs(1, 2, 9), of_costs(3, 2)])
    assert not encoding.admits([of_costs(1, 3)])
    assert encoding.admits([])


def test_who_crowds_waits_until_others_had_their_steps(cache: EncoderCache) -> None:
    encoding, source = Encoding(4), of_costs(2, 4)
    encoding.begin()
    assert encoding.admits([source], crowds=True)
    add(encoding, cache, of_costs(1, 4))
    for rested in (False, False, True):
        encoding.take()
        encoding.commit()
        encoding.begin()
        assert encoding.admits([source], crowds=True) == rested
        assert encoding.admits([source])
        assert encoding.admits([], crowds=True)


def test_an_entry_nobody_uses_is_forgotten(cache: EncoderCache) -> None:
    encoding = Encoding(4)
    first, _ = add(encoding, cache, of_costs(1, 1), of_costs(2, 2))
    cache.release(first)
    encoding.prune()
    assert steps(encoding) == [[2]]


def test_a_failed_step_names_its_entries(cache: EncoderCache) -> None:
    encoding = Encoding(2)
    first, _ = add(encoding, cache, of_costs(1, 2), of_costs(2, 2))
    assert not encoding.outstanding
    encoding.take()
    assert encoding.outstanding
    assert encoding.fail() == [first]
    assert not encoding.outstanding
