"""Groups: what may run, what it sees, and what a preemption leaves."""

from dataclasses import replace

import pytest

from tests.core.requests import item, request, source
from transduce.core.blocks import BlockPool, BlockTable
from transduce.core.encoder_cache import EncoderCache
from transduce.core.plan import Candidate, Choice, StepResult
from transduce.core.request import Span
from transduce.core.search.base import Row
from transduce.core.search.sample import Sample
from transduce.core.sequence import Group, Sequence

ROW = Row((0,), 0, (), None)


def group(*tokens: list[int], pool: BlockPool | None = None, prompt: int = 1) -> Group:
    """A group with a hypothesis per list, nothing computed."""
    asked = request("r", prompt=prompt, width=len(tokens))
    pool = pool or BlockPool(50)
    live = [Sequence(at, at, each, BlockTable(pool, 2, 1)) for at, each in enumerate(tokens)]
    return Group(asked, Sample(asked), 1, live)


def todo(group: Group) -> dict[int, int]:
    return {sequence.seq_id: most for sequence, most in group.todo()}


def test_a_lone_hypothesis_runs_to_its_end() -> None:
    assert todo(group([1, 2, 3])) == {0: 3}


def test_several_hypotheses_stop_one_short_until_all_have() -> None:
    several = group([1, 2, 3], [1, 2], [1])
    assert several.prefilling
    assert todo(several) == {0: 2, 1: 1}
    several.live[0].computed, several.live[1].computed = 2, 1
    assert todo(several) == {0: 1, 1: 1, 2: 1}
    several.rows[1] = ROW
    assert todo(several) == {0: 1, 2: 1}
    assert not several.complete
    several.rows |= {0: ROW, 2: ROW}
    assert several.complete


def test_a_shared_prefix_is_computed_by_the_first_alone() -> None:
    several = group([1, 2, 3, 4], [1, 2, 9])
    several.give_up_pages()
    assert several.prefix == 2
    assert todo(several) == {0: 3}
    several.live[0].computed = 3
    assert todo(several) == {}


@pytest.mark.parametrize(
    ("tokens", "prefix"),
    [([[1, 2, 3]], 0), ([[1, 2], [1, 3]], 1), ([[1, 2, 3], [1, 2, 3]], 2), ([[1, 5, 3, 4], [1, 2, 3, 4]], 1)],
)
def test_the_common_prefix_holds_back_the_last_token(tokens: list[list[int]], prefix: int) -> None:
    several = group(*tokens)
    several.give_up_pages()
    assert several.prefix == prefix


def test_a_preemption_leaves_everything_but_pages_and_rows() -> None:
    pool = BlockPool(50)
    several = group([1, 2, 3], [1, 2, 4], pool=pool)
    for sequence in several.live:
        sequence.table.grow(3)
        sequence.computed = 2
    several.rows[0] = ROW
    several.give_up_pages()
    assert pool.free == pool.capacity
    assert [(s.tokens, s.computed) for s in several.live] == [([1, 2, 3], 0), ([1, 2, 4], 0)]
    assert several.rows == {}


def test_the_others_fork_at_the_prefix() -> None:
    pool = BlockPool(50)
    several = group([1, 2, 3, 4, 5], [1, 2, 3, 9], pool=pool)
    several.give_up_pages()
    first, second = several.live
    first.table.grow(5)
    first.computed = 4
    several.share_prefix()
    assert (second.computed, second.table.blocks) == (3, first.table.blocks[:2])
    assert [pool.count(block) for block in first.table.blocks] == [2, 2, 1]
    assert several.prefix == 0


def test_segments_follow_the_spans() -> None:
    pool = BlockPool(50)
    cache = EncoderCache(pool, 2, 1)
    several = group([1] * 9)
    spans = (Span(2, 0, 3), Span(4, 1, 1), Span(6, 0, 0))
    several.request = replace(several.request, spans=spans)
    several.entries = [cache.acquire(source(item(content, 3))) for content in range(2)]
    first, second = (tuple(entry.table.blocks) for entry in several.entries)
    seen = [(s.length, s.kv_len, s.blocks, s.table) for s in several.segments(1, 7)]
    assert seen == [(1, 0, (), 0), (2, 3, first, 1), (2, 1, second, 2), (2, 0, first, 1)]
    assert [s.length for s in several.segments(4, 1)] == [1]


def test_a_group_is_readable_when_all_its_inputs_are() -> None:
    cache = EncoderCache(BlockPool(50), 2, 1)
    lone = group([1])
    assert lone.readable
    lone.entries = [cache.acquire(source(item(content))) for content in range(2)]
    lone.entries[0].planned = 1
    assert not lone.readable
    lone.entries[1].planned = 1
    assert lone.readable


def test_a_row_is_what_came_of_the_read() -> None:
    lone = group([1, 2, 3], prompt=2)
    (sequence,) = lone.live
    read = lone.read(sequence)
    assert (read.position, lone.generated(sequence)) == (2, 1)
    candidates = (Candidate(7, -1.0),)
    lone.collect(sequence, StepResult({(0, 2): Choice(candidates, ((7, -1.0),))}))
    assert lone.rows == {0: Row((0,), 1, candidates, ((7, -1.0),))}
