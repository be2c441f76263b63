"""Long audio window by window, each beginning where the last timestamp of the one before it says that speech ended.

Owns how tokens are cut at timestamps, where the next window begins, and what is told of the text before it. Times are
counted in samples. As openai/whisper does it, but that no segment ends after the audio.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from transduce.errors import RequestError
from transduce.frontend.dialogue import Dialogue
from transduce.models.base import Clock
from transduce.speech.fallback import Attempt, Fallback, Reader
from transduce.speech.segments import Segment
from transduce.speech.silences import Window, followed, speech_end
from transduce.speech.words import Timed

WARM = 0.5
"""Above this temperature a window's text is no context for the next one."""


TOLD = 1000
"""Tokens of the text before that are remembered: more than any decoder is told."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens of a window between two timestamps, in samples from its start. stop: None where none closes it."""

    start: int
    stop: int | None
    tokens: tuple[int, ...]


def cut(tokens: tuple[int, ...], clock: Clock) -> list[Piece]:
    """A window's tokens, cut where one timestamp follows another; all of them, so the last piece may be open.

    Without such a pair they are one piece, which begins with the window and ends at the last timestamp, unless that is
    the window's start.
    """
    stamps = _stamps(tokens, clock)
    cuts = [at for at in range(1, len(tokens)) if stamps[at - 1] and stamps[at]]
    if not cuts:
        last = next((token for token in reversed(tokens) if token >= clock.zero), clock.zero)
        return [Piece(0, (last - clock.zero) * clock.step or None, tokens)]
    bounds = [0, *cuts, len(tokens)]
    pieces = [_piece(tokens[start:stop], clock) for start, stop in pairwise(bounds)]
    return pieces if closed(tokens, clock) else [*pieces[:-1], Piece(pieces[-1].start, None, pieces[-1].tokens)]


def closed(tokens: tuple[int, ...], clock: Clock) -> bool:
    """Whether text and one timestamp end a window's tokens: nothing is said after that."""
    return _stamps(tokens[-2:], clock) == [False, True]


def _stamps(tokens: tuple[int, ...], clock: Clock) -> list[bool]:
    return [token >= clock.zero for token in tokens]


def _piece(tokens: tuple[int, ...], clock: Clock) -> Piece:
    return Piece((tokens[0] - clock.zero) * clock.step, (tokens[-1] - clock.zero) * clock.step, tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """The samples [start, samples) of a recording, as if it ended there. reader: of what is said in its windows."""

    samples: int
    clock: Clock
    reader: Reader
    start: int = 0

    def part(self, start: float, stop: float | None) -> "Recording":
        """Of a whole one, what is between some seconds; None: its end. Raises RequestError for what is not in it, and
        for less than a frame.
        """
        first, last = self._at(start), self.samples if stop is None else self._at(stop)
        if self.samples <= first or self.samples + self.clock.frame <= last:
            raise RequestError(
                f"clip_timestamps has {start if self.samples <= first else stop:g}, and the audio is "
                f"{self.seconds:.2f} s long; give times within it"
            )
        part = replace(self, start=first, samples=min(last, self.samples))
        if part.end <= first:
            frame = self.clock.frame / self.clock.rate
            raise RequestError(f"clip_timestamps has a part of less than {frame:g} s at {start:g}; give longer ones")
        return part

    def _at(self, seconds: float) -> int:
        """The frame nearest to a time, or one behind the end, as a sample."""
        clock = self.clock
        return round(min(seconds, self.seconds + 1) * clock.rate / clock.frame) * clock.frame

    @property
    def seconds(self) -> float:
        return self.samples / self.clock.rate

    @property
    def end(self) -> int:
        """Where the last window ends: frames are whole."""
        return self.samples // self.clock.frame * self.clock.frame

    def segments(self, pieces: Iterable[Piece], attempt: Attempt, seek: int, length: int) -> Iterator[Segment]:
        """The pieces of a window of `length` samples at `seek`, numbered from 0; empty ones without time or text."""
        for number, piece in enumerate(pieces):
            stop = length if piece.stop is None else piece.stop
            text = self.reader.text(piece.tokens)
            said = piece.start != stop and bool(text.strip())
            yield Segment(
                id=number,
                seek=seek // self.clock.frame,
                start=self._time(seek + piece.start),
                end=self._time(seek + stop),
                text=text if said else "",
                tokens=piece.tokens if said else (),
                temperature=attempt.temperature,
                avg_logprob=attempt.avg_logprob,
                compression_ratio=attempt.compression_ratio,
                no_speech_prob=attempt.no_speech_prob,
            )

    def _time(self, sample: int) -> float:
        return min(sample, self.samples) / self.clock.rate


Context = Mapping[str, object]
"""What a window is told of the text before it, as a Processor's options: `prompt`, text, and `previous`, token ids."""

Decode = Callable[[int, int, Context], Dialogue[Attempt]]
"""decode(start, stop, context): an attempt at the window of those samples that can be believed."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A window's attempt and its segments, of which a silent one has none."""

    attempt: Attempt
    segments: tuple[Segment, ...]

    def worded(self, timed: Timed) -> "Heard":
        """The same with its words; failed, and without segments, where these could not be had."""
        if timed.error is None:
            return replace(self, segments=timed.segments)
        return Heard(replace(self.attempt, output=replace(self.attempt.output, error=timed.error)), ())


def spoken_until(heard: Sequence[Heard]) -> float:
    """Where the last word of windows ends, in seconds; 0 where nothing is said."""
    ends = (speech_end(each.segments) for each in reversed(heard))
    return next((end for end in ends if end is not None), 0.0)


Time = Callable[[Heard, int, int, float], Dialogue[Heard]]
"""time(window, start, stop, spoken): the window of those samples with its words, the last before it ending then."""


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """Windows that begin where words end. threshold: seconds of silence, see `silences.followed`."""

    time: Time
    threshold: float | None = None


Tell = Callable[[Sequence[Heard]], None]
"""Is told all windows so far, time and again."""


def sequential(
    parts: Iterable[Recording],
    decode: Decode,
    fallback: Fallback,
    prompt: str | None,
    condition: bool,
    tell: Tell | None = None,
    pace: Pace | None = None,
) -> Dialogue[list[Heard]]:
    """All windows of some parts of a recording, up to one that fails.

    prompt: what was said before it. condition: whether a window is told the text of all that came before it, which is
    forgotten when one had to be decoded at a high temperature. pace: None for segments without words.
    """
    heard, told = list[Heard](), tuple[int, ...]()
    for part in parts:
        seek = part.start
        while seek < part.end:
            length = min(part.clock.window, part.end - seek)
            attempt = yield from decode(seek, seek + length, {"prompt": prompt, "previous": told})
            if attempt.failed:
                return [*heard, Heard(attempt, ())]
            silent = fallback.silent(attempt)
            pieces, advance = ([], length) if silent else finished(cut(attempt.tokens, part.clock), length)
            window = Heard(attempt, tuple(part.segments(pieces, attempt, seek, length)))
            if pace is not None and pieces:
                window, advance = yield from _paced(pace, part, window, seek, advance, spoken_until(heard))
                if window.attempt.failed:
                    return [*heard, window]
            heard.append(window)
            if tell is not None:
                tell(heard)
            told = (*told, *(token for segment in window.segments for token in segment.tokens))[-TOLD:]
            if pieces and not (condition and attempt.temperature <= WARM):
                prompt, told = None, ()
            seek += advance
    return heard


def _paced(
    pace: Pace, recording: Recording, window: Heard, seek: int, advance: int, spoken: float
) -> Dialogue[tuple[Heard, int]]:
    """A window with the words that are believed, and how far it goes; without them, by `advance`."""
    clock, full = recording.clock, seek + recording.clock.window
    stop = min(full, recording.end)
    window = yield from pace.time(window, seek, stop, spoken)
    start, until, filled, end = (at / clock.rate for at in (seek, stop, full, recording.end))
    place = Window(start, until, filled, end, closed(window.attempt.tokens, clock))
    segments, following = followed(window.segments, place, spoken, pace.threshold)
    if following is not None:
        rounded = round(following * clock.rate / clock.frame) * clock.frame
        advance = max(clock.frame, rounded - seek)  # the next window is a later one
    return replace(window, segments=tuple(map(_audible, segments))), advance


def _audible(segment: Segment) -> Segment:
    """The segment, empty where its words left it no time."""
    return segment if segment.start < segment.end else replace(segment, text="", tokens=(), words=())


def finished(pieces: list[Piece], length: int) -> tuple[list[Piece], int]:
    """What a window says for good, and how far: an open piece behind others is left to the next window."""
    if len(pieces) == 1 or pieces[-1].stop is not None:
        return pieces, length
    return pieces[:-1], pieces[-2].stop or length
