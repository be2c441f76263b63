"""Speech packed into windows that a model can take, with the samples that belong to them.

Owns where a recording is cut. Knows what speech is only by its spans.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from transduce.media.audio import Samples
from transduce.media.voice import RATE, Voice
from transduce.speech.activity import Span, SpanFinder, VadOptions

MOST = 30 * RATE


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbouring speech as one piece of the recording, silences between its spans included.

    spans: in order, at least one, in samples from the recording's beginning.
    """

    spans: tuple[Span, ...]

    @property
    def start(self) -> int:
        return self.spans[0].start

    @property
    def end(self) -> int:
        return self.spans[-1].end


@dataclass(frozen=True, slots=True)
class Clip:
    """A window and its samples [window.end - window.start]."""

    window: Window
    samples: Samples


def windows(spans: Iterable[Span], most: int = MOST) -> Iterator[Window]:
    """Pack spans, in order and disjoint, into as few windows of at most `most` samples as there can be.

    A span that is longer than `most` is cut into pieces of that length: what is silent in it, nobody knows here.
    """
    packer = _Packer(most)
    for span in spans:
        yield from packer.add(span)
    yield from packer.finish()


def clips(pieces: Iterable[Samples], voice: Voice, options: VadOptions | None = None) -> Iterator[Clip]:
    """The windows of speech, of at most `options.max_speech`, of a recording as `activity.spans` takes it.

    Each comes as soon as the pieces that were read make it certain. Little more than two windows and a piece is held,
    however long the recording, its speech and its silences are.
    """
    options = options or VadOptions()
    tape, finder, packer = _Tape(), SpanFinder(options), _Packer(int(options.max_speech * RATE))
    for voiced in voice.probabilities(tape.record(pieces)):
        for span in finder.add(voiced):
            yield from map(tape.clip, packer.add(span))
        yield from map(tape.clip, packer.settle(finder.settled))
        tape.forget(packer.start(finder.settled))
    for span in finder.finish():
        yield from map(tape.clip, packer.add(span))
    yield from map(tape.clip, packer.finish())


class _Packer:
    """The window that is being filled."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._spans: list[Span] = []

    def start(self, settled: int) -> int:
        """Where the first window to come begins at the earliest, no span to come beginning before `settled`."""
        return self._spans[0].start if self._spans else settled

    def add(self, span: Span) -> Iterator[Window]:
        """The span that follows; yields the windows that are now full."""
        for start in range(span.start, span.end, self._most):
            part = Span(start, min(start + self._most, span.end))
            if self._spans and part.end - self._spans[0].start > self._most:
                yield from self.finish()
            self._spans.append(part)

    def settle(self, settled: int) -> Iterator[Window]:
        """No span to come begins before `settled`; yields the window if that leaves no room in it."""
        if self._spans and settled - self._spans[0].start >= self._most:
            yield from self.finish()

    def finish(self) -> Iterator[Window]:
        """Yields the window as it is."""
        if self._spans:
            yield Window(tuple(self._spans))
            self._spans.clear()


class _Tape:
    """The end of a recording, as far back as it is still wanted."""

    def __init__(self) -> None:
        self._start = 0
        self._pieces: deque[Samples] = deque()

    def record(self, pieces: Iterable[Samples]) -> Iterator[Samples]:
        for piece in pieces:
            self._pieces.append(piece)
            yield piece

    def clip(self, window: Window) -> Clip:
        starts = accumulate(map(len, self._pieces), initial=self._start)
        parts = [
            piece[max(0, window.start - start) : max(0, window.end - start)]
            for piece, start in zip(self._pieces, starts, strict=False)
        ]
        return Clip(window, np.concatenate(parts))

    def forget(self, before: int) -> None:
        """Drop the pieces that end before a sample."""
        while self._pieces and self._start + len(self._pieces[0]) <= before:
            self._start += len(self._pieces.popleft())
