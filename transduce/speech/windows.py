"""Speech packed into windows that a model can take, with the samples that belong to them.

Owns where a recording is cut. Knows what speech is only by its spans.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from transduce.media.audio import Samples
from transduce.media.tape import Tape
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
    tape, finder, packer = Tape(), SpanFinder(options), _Packer(int(options.max_speech * RATE))

    def clip(window: Window) -> Clip:
        return Clip(window, tape.part(window.start, window.end))

    for voiced in voice.probabilities(tape.record(pieces)):
        for span in finder.add(voiced):
            yield from map(clip, packer.add(span))
        yield from map(clip, packer.settle(finder.settled))
        tape.forget(packer.start(finder.settled))
    for span in finder.finish():
        yield from map(clip, packer.add(span))
    yield from map(clip, packer.finish())


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
