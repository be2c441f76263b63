"""The encoder cache: who shares an entry, when it goes, and what a lease is worth."""

import pytest

from tests.core.requests import item, source
from transduce.core.blocks import IDLE_SHARE, BlockPool, OutOfBlocksError
from transduce.core.encoder_cache import EncoderCache, Entry
from transduce.core.request import EncoderInput

A, B, C = (source(item(content)) for content in range(3))


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(4)


@pytest.fixture
def cache(pool: BlockPool) -> EncoderCache:
    return EncoderCache(pool, 1, 1)


def write(entry: Entry) -> None:
    entry.planned = entry.written = len(entry.source.items)


def idle(cache: EncoderCache, *sources: EncoderInput) -> None:
    """Use the inputs at once, and let them go one after the other."""
    entries = [cache.acquire(each) for each in sources]
    for entry in entries:
        write(entry)
        cache.release(entry)


def test_idle_entries_take_what_was_in_use_at_once(pool: BlockPool, cache: EncoderCache) -> None:
    idle(cache, A)
    idle(cache, B)
    assert (cache.find(A.key), pool.free) == (None, 2)
    idle(cache, A, C)
    assert cache.find(B.key) is None
    assert pool.free == 1


def test_or_a_share_of_the_pool() -> None:
    pool = BlockPool(3 * IDLE_SHARE + 1)
    cache = EncoderCache(pool, 1, 1)
    for content in range(10):
        idle(cache, source(item(content)))
    assert [content for content in range(10) if cache.find(source(item(content)).key)] == [7, 8, 9]


def test_a_lease_keeps_an_idle_entry(cache: EncoderCache) -> None:
    idle(cache, A)
    assert cache.hold(A.key)
    idle(cache, B)
    assert cache.find(A.key) is not None
    assert cache.find(B.key) is None


def test_equal_inputs_share_an_entry(cache: EncoderCache, pool: BlockPool) -> None:
    entry = cache.acquire(A)
    assert cache.acquire(source(item(0))) is entry
    assert (entry.users, cache.queries, cache.hits, len(cache), pool.free) == (2, 2, 1, 1, 2)
    assert cache.acquire(B).table_id != entry.table_id


def test_an_entry_is_readable_when_planned_and_ready_when_written(cache: EncoderCache) -> None:
    entry = cache.acquire(source(item(7), item(8)))
    assert not entry.readable
    entry.planned, entry.written = 2, 1
    assert entry.readable
    assert not entry.ready
    write(entry)
    assert entry.ready


def test_an_input_that_does_not_fit_leaves_no_entry(cache: EncoderCache, pool: BlockPool) -> None:
    with pytest.raises(OutOfBlocksError):
        cache.acquire(source(item(9, rows=4)))
    assert (len(cache), pool.free) == (0, 3)


def test_an_unused_entry_stays_if_written(cache: EncoderCache, pool: BlockPool) -> None:
    idle(cache, A)
    assert cache.find(A.key) is not None
    assert (pool.free, cache.evictable(), cache.evictable(frozenset([A.key]))) == (2, 1, 0)
    entry = cache.acquire(A)
    assert entry.ready
    assert cache.evictable() == 0


def test_an_unused_entry_goes_if_it_is_not_written(cache: EncoderCache, pool: BlockPool) -> None:
    cache.release(cache.acquire(A))
    assert (cache.find(A.key), pool.free) == (None, 3)


def test_the_least_recently_used_goes_first(cache: EncoderCache) -> None:
    idle(cache, A, B, C, A)
    assert cache.evict(2)
    assert [cache.find(each.key) is not None for each in (A, B, C)] == [True, False, False]
    assert cache.lease_evictions == 0


def test_eviction_spares_what_is_kept_or_in_use(cache: EncoderCache, pool: BlockPool) -> None:
    idle(cache, A, B)
    cache.acquire(C)
    assert not cache.evict(3, keep=frozenset([A.key]))
    assert pool.free == 1
    assert cache.evict(2)
    assert cache.find(C.key) is not None


def test_nothing_is_evicted_without_need(cache: EncoderCache) -> None:
    idle(cache, A)
    assert cache.evict(2)
    assert cache.find(A.key) is not None


def test_leased_entries_go_last_and_are_counted(cache: EncoderCache) -> None:
    idle(cache, A, B)
    assert cache.hold(A.key)
    assert cache.evict(2)
    assert cache.find(A.key) is not None
    assert cache.evict(3)
    assert (cache.find(A.key), cache.lease_evictions) == (None, 1)


def test_nothing_is_leased_that_is_not_there(cache: EncoderCache) -> None:
    assert not cache.hold(A.key)
    with pytest.raises(AssertionError, match="no such lease"):
        cache.unhold(A.key)


def test_a_lease_ends_when_its_last_holder_gives_it_back(cache: EncoderCache) -> None:
    idle(cache, A, B)
    cache.hold(A.key)
    cache.hold(A.key)
    cache.unhold(A.key)
    assert cache.evict(2)
    assert cache.find(A.key) is not None
    idle(cache, B)
    cache.unhold(A.key)
    assert cache.evict(2)
    assert cache.find(A.key) is None


def test_giving_back_a_lease_that_pressure_took_leaves_later_ones_alone(cache: EncoderCache) -> None:
    idle(cache, A)
    cache.hold(A.key)
    cache.evict(3)
    idle(cache, A, B)
    cache.hold(A.key)
    cache.unhold(A.key)
    cache.evict(2)
    assert cache.find(A.key) is not None
