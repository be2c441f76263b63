"""The part of a recording that is looked at, however long the whole is.

Owns what is in memory of it, and that it is decoded again where what was forgotten is asked for. Knows no format.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate

import numpy as np

from transduce.media.audio import Decoded, Excerpt, Samples, Whole


class Tape:
    """A recording as far as it has come, from where it is still wanted on: samples [start, end)."""

    def __init__(self) -> None:
        self._pieces: deque[Samples] = deque()
        self.start = self.end = 0

    def add(self, piece: Samples) -> None:
        """What follows."""
        self._pieces.append(piece)
        self.end += len(piece)

    def record(self, pieces: Iterable[Samples]) -> Iterator[Samples]:
        """The pieces as they are, each added when it is asked for."""
        for piece in pieces:
            self.add(piece)
            yield piece

    def part(self, start: int, stop: int) -> Samples:
        """Samples [start, stop), as far as there are any."""
        starts = accumulate(map(len, self._pieces), initial=self.start)
        parts = [piece[max(0, start - at) : max(0, stop - at)] for piece, at in zip(self._pieces, starts, strict=False)]
        return np.concatenate(parts)

    def forget(self, before: int) -> None:
        """Drop the pieces that end before a sample."""
        while self._pieces and self.start + len(self._pieces[0]) <= before:
            self.start += len(self._pieces.popleft())


class Held:
    """A recording in memory. level: makes an excerpt's, which nobody needs of the whole. frame: samples of one."""

    def __init__(self, recording: Samples, level: Callable[[Iterable[Samples]], float], frame: int) -> None:
        self._recording = recording
        self._measure = level
        self._frame = frame

    def excerpt(self, start: int, stop: int) -> Decoded:
        """Samples [start, stop): the whole, where less than a frame is missing."""
        if start == 0 and len(self._recording) - stop < self._frame:
            return Whole(self._recording)
        return Excerpt(self._recording, start, stop, self._level)

    @cached_property
    def _level(self) -> float:
        return self._measure([self._recording])


class Reel:
    """A recording in windows that mostly go forward, decoded as far as they reach. pieces: begins to decode it.

    level: see Excerpt. beside: samples of it that an excerpt has around its edges.
    """

    def __init__(self, pieces: Callable[[], Iterator[Samples]], level: float, beside: int) -> None:
        self._begin = pieces
        self._pieces, self._tape = pieces(), Tape()
        self._level = level
        self._beside = beside

    def excerpt(self, start: int, stop: int) -> Excerpt:
        """Samples [start, stop). Raises MediaError as `stream` does."""
        first, last = max(0, start - self._beside), stop + self._beside
        if first < self._tape.start:
            self._pieces, self._tape = self._begin(), Tape()
        self._tape.forget(first)
        while self._tape.end < last and (piece := next(self._pieces, None)) is not None:
            self._tape.add(piece)
            self._tape.forget(first)
        return Excerpt(self._tape.part(first, last), start - first, stop - first, self._level)
