"""Items that are made in a thread, a few ahead."""

import threading
from collections.abc import Iterator

import pytest

from transduce.frontend.ahead import Ahead


class Made:
    """Numbers, and how many have been made by which threads; after the last one it breaks."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.number = 0
        self.threads: set[threading.Thread] = set()

    def __iter__(self) -> Iterator[int]:
        while self.number < self._count:
            self.threads.add(threading.current_thread())
            self.number += 1
            yield self.number
        raise ValueError("broken")


def test_so_many_are_made_ahead_and_no_more() -> None:
    made = Made(10)
    with Ahead(iter(made), 3) as items:
        assert next(items) == 1
        assert items.coming().result() == 2
        assert next(items) == 2
    assert made.number <= 5  # two were taken
    assert threading.current_thread() not in made.threads
    assert not any(thread.is_alive() for thread in made.threads)


def test_what_making_one_raises_is_raised_where_it_would_be_taken() -> None:
    with Ahead(iter(Made(2)), 3) as items:
        assert [next(items), next(items)] == [1, 2]
        assert str(items.coming().exception()) == "broken"
        with pytest.raises(ValueError, match="broken"):
            next(items)
        assert [*items] == []
