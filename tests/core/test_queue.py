"""The waiting queue: by priority; preempted groups; owners that hold the fewest places, in turn."""

import pytest

from tests.core.requests import request
from transduce.core.blocks import BlockPool, BlockTable
from transduce.core.queue import CROWD, WaitingQueue
from transduce.core.search.sample import Sample
from transduce.core.sequence import Group, Sequence


def group(arrival: int, owner: str = "", priority: int = 0, width: int = 1) -> Group:
    asked = request(f"r{arrival}", owner=owner, priority=priority, width=width)
    sequence = Sequence(arrival, 0, list(asked.prompt), BlockTable(BlockPool(1), 1, 1))
    return Group(asked, Sample(asked), arrival, [sequence])


def drain(queue: WaitingQueue) -> list[int]:
    order = []
    while (first := queue.first()) is not None:
        assert queue.pop_first() is first
        order.append(first.arrival)
    assert len(queue) == 0
    return order


def test_one_owner_is_served_in_order() -> None:
    queue = WaitingQueue()
    for arrival in range(3):
        queue.add(group(arrival))
    assert len(queue) == 3
    assert drain(queue) == [0, 1, 2]


def test_whoever_holds_fewer_places_goes_first() -> None:
    queue = WaitingQueue()
    for arrival in range(4):
        queue.add(group(arrival, "file"))
    running = queue.pop_first()
    queue.add(group(9, "clip", width=2))
    queue.add(group(10, "clip"))
    assert drain(queue) == [9, 1, 10, 2, 3]
    queue.add(group(11, "file"))
    queue.leave(running)
    queue.add(group(12, "clip"))
    assert drain(queue) == [11, 12]


def test_who_crowds_whom() -> None:
    queue = WaitingQueue()
    for arrival in range(CROWD + 2):
        queue.add(group(arrival, "file"))
    for _ in range(CROWD):
        queue.pop_first()
    window, clip = group(7, "file"), group(8, "clip", priority=1)
    assert not queue.crowds(window), "nobody else is there"
    queue.add(clip)
    queue.pop_first()
    assert not queue.crowds(window)
    queue.pop_first()
    assert not queue.crowds(window), "the clip is less urgent"
    queue.add(group(9, "clip"))
    assert not queue.crowds(window), "it waits"
    queue.pop_first()
    assert queue.crowds(window)
    assert not queue.crowds(clip)


def test_an_owner_that_is_left_with_nothing_waits_for_its_turn() -> None:
    """Else one that comes again and again would keep it out."""
    queue = WaitingQueue()
    for arrival in range(2):
        queue.add(group(arrival, "file"))
    running = queue.pop_first()
    queue.add(group(2, "early"))
    queue.leave(running)
    queue.add(group(3, "late"))
    assert drain(queue) == [2, 1, 3]


def test_lower_priorities_go_first_whoever_was_preempted() -> None:
    queue = WaitingQueue()
    for arrival, priority in enumerate([1, 0, -5, 1]):
        queue.add(group(arrival, priority=priority))
    queue.put_back(group(4, priority=0))
    assert drain(queue) == [2, 4, 1, 0, 3]


def test_owners_take_turns() -> None:
    queue = WaitingQueue()
    for arrival, owner in enumerate("aaabbc"):
        queue.add(group(arrival, owner))
    assert drain(queue) == [0, 3, 5, 1, 4, 2]


def test_preempted_groups_come_back_first_and_in_order() -> None:
    queue = WaitingQueue()
    queue.add(group(5))
    for arrival in (4, 2, 3):
        queue.put_back(group(arrival))
    assert len(queue) == 4
    assert drain(queue) == [2, 3, 4, 5]


@pytest.mark.parametrize(("gone", "left"), [(0, [3, 1, 2]), (1, [3, 0, 2]), (2, [3, 0, 1]), (3, [0, 2, 1])])
def test_a_group_leaves_from_anywhere(gone: int, left: list[int]) -> None:
    queue = WaitingQueue()
    groups = [group(0, "a"), group(1, "a"), group(2, "b"), group(3)]
    for each in groups[:3]:
        queue.add(each)
    queue.put_back(groups[3])
    queue.remove(groups[gone])
    assert drain(queue) == left
