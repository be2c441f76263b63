"""Items that are made in a thread of their own, a few ahead of whoever takes them: who has else to do need not wait.

Owns the thread and how far it is ahead. Knows not what is made.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """The same items as those of an iterator, `most` of which are made before they are taken.

    Leaving it as a context waits for the one that is being made, and makes no more: the thread is gone then.
    """

    def __init__(self, items: Iterator[T], most: int) -> None:
        self._items = items
        self._thread = ThreadPoolExecutor(1)
        self._made = deque(self._begun() for _ in range(most))

    def coming(self) -> Future[T | None]:
        """The next item, which stays the next; None where there are no more. Its `result` raises what making it did."""
        return self._made[0]

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """Take the next item; waits for it, and raises what making it did."""
        self._made.append(self._begun())
        item = self._made.popleft().result()
        if item is None:
            raise StopIteration
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _begun(self) -> Future[T | None]:
        return self._thread.submit(next, self._items, None)
