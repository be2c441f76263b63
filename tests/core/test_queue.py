"""The waiting queue: preempted groups, then owners in turn."""

import pytest

from tests.core.requests import request
from transduce.core.blocks import BlockPool, BlockTable
from transduce.core.queue import WaitingQueue
from transduce.core.search.sample import Sample
from transduce.core.sequence import Group, Sequence


def group(arrival: int, owner: str = "") -> Group:
    asked = request(f"r{arrival}", owner=owner)
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


def test_a_short_request_overtakes_the_rest_of_a_long_owner() -> None:
    queue = WaitingQueue()
    for arrival in range(4):
        queue.add(group(arrival, "file"))
    queue.pop_first()
    queue.add(group(9, "clip"))
    assert drain(queue) == [1, 9, 2, 3]


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
