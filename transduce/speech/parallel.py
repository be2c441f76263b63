"""Long audio cut at silences: the windows of speech side by side, each heard until none of its speech is left.

Owns what becomes of the windows of one recording, their order, and what a window says for good. Knows not how a window
is decoded, nor how many of them the engine takes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from threading import Lock

from transduce.errors import RequestError
from transduce.frontend.ahead import Ahead
from transduce.frontend.dialogue import Branches, Dialogue
from transduce.media.audio import Samples
from transduce.models.base import Clock
from transduce.speech.activity import Span
from transduce.speech.fallback import Attempt, Fallback, Reader
from transduce.speech.segments import Segment
from transduce.speech.sequential import Heard, Piece, Recording, Tell, cut, finished, spoken_until
from transduce.speech.windows import Clip, Window

MOST = 32
"""Windows of a recording that are open at once: more would fill no batch better, and are more audio to hold."""

REST = 1.0
"""Seconds of speech, padding included: as much behind a window's last timestamp is heard again, less is inexactness."""

SLACK = 0.2
"""Seconds that a timestamp may be off: a segment that touches less of a span is not of that."""


@dataclass(frozen=True, slots=True, eq=False)
class Hearing:
    """How windows are heard. decode(samples): an attempt at a window of those samples that can be believed.

    time(samples, window, spoken): that window with its words, where the last before it ends then, in seconds.
    padding: seconds at a span's ends of which a segment's times take no more than half, where the network found none.
    """

    clock: Clock
    reader: Reader
    fallback: Fallback
    decode: Callable[[Samples], Dialogue[Attempt]]
    time: Callable[[Samples, Heard, float], Dialogue[Heard]] | None = None
    padding: float = 0.0


class Counted:
    """Pieces of a recording, and of how many samples they were so far."""

    def __init__(self, pieces: Iterable[Samples]) -> None:
        self._pieces = pieces
        self._closed = False
        self.samples = 0

    def __iter__(self) -> Iterator[Samples]:
        for piece in self._pieces:
            if self._closed:
                return
            self.samples += len(piece)
            yield piece

    def close(self) -> None:
        """There are no more; in any thread."""
        self._closed = True


def parallel(clips: Ahead[Clip], hearing: Hearing, tell: Tell, most: int) -> Dialogue[list[Heard]]:
    """All windows of a recording in the order of time, up to one that fails.

    most: windows that the engine runs at once: more are not begun. tell: is told all windows up to the first that is
    not decoded yet, time and again. RequestErrors of `clips` are raised when the windows before have been heard.
    """
    heard: dict[int, list[Heard]] = {}
    errors: list[RequestError] = []
    turn = Lock()  # a driver may advance branches in several threads

    def window(number: int, clip: Clip) -> Dialogue[None]:
        found = yield from _window(clip, hearing)
        with turn:
            heard[number] = found
            tell(_in_order(heard))

    def windows() -> Iterator[Dialogue[None]]:
        try:
            for number, clip in enumerate(clips):
                yield window(number, clip)
        except RequestError as error:
            errors.append(error)

    yield Branches(windows(), min(most, MOST), clips.coming)
    for error in errors:
        raise error
    return _in_order(heard)


def _in_order(heard: dict[int, list[Heard]]) -> list[Heard]:
    """What windows say, up to the first that is missing or fails."""
    result: list[Heard] = []
    for number in range(len(heard)):
        result += heard.get(number, [])
        if number not in heard or heard[number][-1].attempt.failed:
            break
    return result


def _window(clip: Clip, hearing: Hearing) -> Dialogue[list[Heard]]:
    """One window, and its rest where the decoder stopped before the speech did."""
    seek, heard = 0, list[Heard]()
    while seek < len(clip.samples):
        attempt = yield from hearing.decode(clip.samples[seek:])
        if attempt.failed:
            return [*heard, Heard(attempt, ())]
        said, advance = _said(clip, seek, attempt, hearing)
        if hearing.time is not None and said.segments:
            said = yield from hearing.time(clip.samples[seek:], said, spoken_until(heard))
        heard.append(said)
        if said.attempt.failed:
            break
        seek += advance
    return heard


def _said(clip: Clip, seek: int, attempt: Attempt, hearing: Hearing) -> tuple[Heard, int]:
    """What a window, heard from `seek` on, says for good, and how far that goes."""
    window, clock, start, length = clip.window, hearing.clock, clip.window.start + seek, len(clip.samples) - seek
    if hearing.fallback.silent(attempt):
        return Heard(attempt, ()), length
    pieces, advance = _certain(window, start, cut(attempt.tokens, clock), clock.rate)
    segments = Recording(window.end, clock, hearing.reader).segments(pieces, attempt, start, length)
    trim = int(hearing.padding * clock.rate) // 2
    spoken = (_spoken(segment, window.spans, clock.rate, trim) for segment in segments if segment.text)
    return Heard(attempt, tuple(filter(None, spoken))), advance


def _certain(window: Window, start: int, pieces: list[Piece], rate: int) -> tuple[list[Piece], int]:
    """The pieces of a window from `start` on, and how far they go: not the last one where that was cut off and much
    speech is behind it.
    """
    length = window.end - start
    done, _ = finished(pieces, length)
    advance = done[-1].stop or length
    left = sum(max(0, span.end - max(span.start, start + advance)) for span in window.spans)
    return (done, advance) if min(advance, left) >= REST * rate else (pieces, length)


def _spoken(segment: Segment, spans: Iterable[Span], rate: int, trim: int) -> Segment | None:
    """A segment without the silence at its ends, of which `trim` samples are in a span; None where a decoder found it
    between the spans: nobody said it.
    """
    start, end = segment.start * rate, segment.end * rate
    touched = [span for span in spans if span.start < end and start < span.end]
    within = [span for span in touched if min(span.end, end) - max(span.start, start) >= SLACK * rate] or touched
    if not within:
        return None
    first, last = within[0], within[-1]
    start = max(start, first.start + min(trim, len(first) // 4))
    return replace(segment, start=start / rate, end=max(start, min(end, last.end - min(trim, len(last) // 4))) / rate)
