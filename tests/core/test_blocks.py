"""Blocks: counts, tables, and who may write where."""

import pytest

from transduce.core.blocks import BlockPool, BlockTable, OutOfBlocksError


def test_block_zero_is_never_handed_out() -> None:
    pool = BlockPool(4)
    assert (pool.free, pool.capacity) == (3, 3)
    assert sorted(pool.allocate(3)) == [1, 2, 3]
    assert pool.free == 0


def test_allocation_is_all_or_nothing() -> None:
    pool = BlockPool(3)
    with pytest.raises(OutOfBlocksError, match="3 blocks wanted, 2 free"):
        pool.allocate(3)
    assert pool.free == 2
    assert pool.allocate(0) == []


def test_the_last_reference_frees_a_block() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.retain(blocks)
    pool.release(blocks)
    assert (pool.count(1), pool.free) == (1, 0)
    pool.release(blocks)
    assert (pool.count(1), pool.free) == (0, 1)


def test_a_free_block_cannot_be_retained_or_released() -> None:
    pool = BlockPool(2)
    with pytest.raises(AssertionError, match="block 1 is free"):
        pool.retain([1])
    with pytest.raises(AssertionError, match="block 1 is free"):
        pool.release([1])


@pytest.mark.parametrize(("tokens", "slabs", "blocks"), [(0, 1, 0), (1, 1, 1), (4, 1, 1), (5, 1, 2), (5, 3, 6)])
def test_a_table_grows_by_logical_blocks(tokens: int, slabs: int, blocks: int) -> None:
    pool = BlockPool(9)
    table = BlockTable(pool, 4, slabs)
    assert table.missing(tokens) == blocks
    table.grow(tokens)
    assert len(table.blocks) == blocks
    assert (table.missing(tokens), table.missing(0)) == (0, 0)
    assert pool.free == 8 - blocks


def test_a_table_that_cannot_grow_stays_as_it_is() -> None:
    table = BlockTable(BlockPool(3), 1, 1)
    table.grow(1)
    with pytest.raises(OutOfBlocksError):
        table.grow(4)
    assert len(table.blocks) == 1


def test_forks_share_until_one_writes() -> None:
    pool = BlockPool(9)
    parent = BlockTable(pool, 4, 2)
    parent.grow(6)
    first = list(parent.blocks)
    child = parent.fork()
    assert parent.shared(5)
    assert child.shared(5)
    assert not parent.shared(8)
    assert child.needed(6, 7) == 2
    copies = child.make_writable(6, 7)
    assert [source for source, _ in copies] == first[2:]
    assert [target for _, target in copies] == child.blocks[2:]
    assert child.blocks[:2] == first[:2]
    assert parent.blocks == first
    assert parent.make_writable(6, 8) == []
    assert parent.shared(3)
    assert not parent.shared(4)


def test_a_write_behind_the_end_grows_and_copies_nothing() -> None:
    table = BlockTable(BlockPool(9), 2, 1)
    table.grow(2)
    other = table.fork()
    assert table.needed(2, 5) == 2
    assert table.make_writable(2, 5) == []
    assert table.blocks[:1] == other.blocks


def test_truncate_keeps_the_blocks_that_hold_the_tokens() -> None:
    pool = BlockPool(9)
    table = BlockTable(pool, 4, 2)
    table.grow(9)
    table.truncate(4)
    assert (len(table.blocks), pool.free) == (2, 6)
    table.truncate(1)
    assert len(table.blocks) == 2
    table.clear()
    assert (table.blocks, pool.free) == ([], 8)


def test_kept_blocks_are_free_last_and_may_be_taken_back() -> None:
    pool = BlockPool(5)
    lost: list[int] = []
    pool.on_loss = lost.append
    first, second, third, fourth = pool.allocate(4)
    pool.keep([first, second])
    pool.release([first, second, third])
    pool.retain([second])
    assert (pool.free, pool.count(second)) == (2, 1)
    assert pool.allocate(1) == [third]
    assert lost == []
    assert pool.allocate(1) == [first]
    assert lost == [first]
    pool.give_up([second])
    pool.release([second])
    assert pool.allocate(1) == [second]
    assert lost == [first]
    assert pool.count(fourth) == 1
