"""Where somebody speaks: probabilities of speech to spans.

Owns the thresholds and durations that tell speech from silence. Knows no network, no windows and no models.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace

from transduce.core.checks import Range, number
from transduce.errors import RequestError
from transduce.media.audio import Samples
from transduce.media.voice import FRAME, RATE, Voice, Voiced


@dataclass(frozen=True, slots=True)
class Span:
    """Samples [start, end) of a recording at 16 kHz."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class VadOptions:
    """What counts as speech. Durations are in seconds.

    threshold: probability from which a frame begins speech.
    neg_threshold: probability below which a frame ends it; None: 0.15 less than `threshold`, at least 0.01.
    min_speech: what is shorter is noise, if it is apart: spans that touch when padded count as one.
    min_silence: a silence that is shorter does not part two spans.
    speech_pad: what is added to a span at either side, though never more than half of the silence there.
    max_speech: the length, padding included, at which a span is cut: at the longest silence in it, and where it has
    none, wherever the limit falls.

    Raises RequestError for values that contradict each other or are out of range.
    """

    threshold: float = 0.5
    neg_threshold: float | None = None
    min_speech: float = 0.1
    min_silence: float = 0.16
    speech_pad: float = 0.4
    max_speech: float = 30.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None:
                number(f"vad {name}", value, Range(-math.inf, math.inf))
        if not 0 < self.threshold <= 1:
            raise RequestError(f"vad threshold {self.threshold}: give more than 0 and at most 1")
        if self.neg_threshold is not None and not 0 <= self.neg_threshold <= self.threshold:
            raise RequestError(f"vad neg_threshold {self.neg_threshold}: give 0 to the threshold, {self.threshold}")
        for name in ("min_speech", "min_silence", "speech_pad"):
            if not 0 <= (value := getattr(self, name)) < float("inf"):
                raise RequestError(f"vad {name} {value}: give seconds, 0 or more")
        if not (least := 2 * self.speech_pad + 1) <= self.max_speech < float("inf"):
            raise RequestError(f"vad max_speech {self.max_speech}: give at least {least:g}, the padding and a second")

    def within(self, window: float) -> "VadOptions":
        """These for a model that hears so many seconds at once, a second or more of which are not padding."""
        longest = min(self.max_speech, window)
        return replace(self, max_speech=longest, speech_pad=min(self.speech_pad, (longest - 1) / 2))


def spans(pieces: Iterable[Samples], voice: Voice, options: VadOptions | None = None) -> Iterator[Span]:
    """The speech in a recording, mono at 16 kHz, which comes in pieces [samples] of any sizes.

    Spans are in order and do not overlap; each comes as soon as the pieces that were read make it certain. Pieces of a
    second or more cost least.
    """
    finder = SpanFinder(options or VadOptions())
    for voiced in voice.probabilities(pieces):
        yield from finder.add(voiced)
    yield from finder.finish()


@dataclass(slots=True)
class _Open:
    """A span that has begun.

    start: with its padding. spoken: where speech began that it goes on with, itself or spans that touch it.
    silence: where the one begins that it may end with. silences: those it did not end with.
    """

    start: int
    spoken: int
    silence: int | None = None
    silences: list[Span] = field(default_factory=list)


class SpanFinder:
    """One recording's speech, found while it comes in."""

    def __init__(self, options: VadOptions) -> None:
        self._on = options.threshold
        self._off = max(self._on - 0.15, 0.01) if options.neg_threshold is None else options.neg_threshold
        self._min_speech = options.min_speech * RATE
        self._min_silence = options.min_silence * RATE
        self._pad = int(options.speech_pad * RATE)
        self._longest = options.max_speech * RATE
        self._heard = 0
        self._open: _Open | None = None

    @property
    def settled(self) -> int:
        """No span to come has samples before this one."""
        return max(0, self._heard - self._pad) if self._open is None else self._open.start

    def add(self, voiced: Voiced) -> Iterator[Span]:
        """Go on with the frames that follow; yields the spans that are now certain."""
        for probability in voiced.probabilities.tolist():
            begin, self._heard = self._heard, min(self._heard + FRAME, voiced.end)
            speaking = self._open is not None and self._open.silence is None
            if probability >= (self._off if speaking else self._on):
                yield from self._speech(begin)
            elif self._open is not None:
                yield from self._quiet(self._open, begin)

    def finish(self) -> Iterator[Span]:
        """The recording is over; yields the span that it ended in, if any."""
        if self._open is not None:
            silence = self._heard if self._open.silence is None else self._open.silence
            yield from self._end(self._open, silence)

    def _speech(self, begin: int) -> Iterator[Span]:
        if self._open is None:
            self._open = _Open(max(0, begin - self._pad), begin)
        span = self._open
        if span.silence is not None:
            yield from self._resume(span, Span(span.silence, begin))
        while self._heard + self._pad - span.start > self._longest:
            yield self._part(span, max(span.silences, key=len, default=Span(begin, begin)))

    def _resume(self, span: _Open, silence: Span) -> Iterator[Span]:
        """Speech comes back after a silence: in the same span, or in another that touches it."""
        span.silence = None
        if len(silence) < self._min_silence:
            span.silences.append(silence)
        else:
            yield self._part(span, silence)

    def _quiet(self, span: _Open, begin: int) -> Iterator[Span]:
        if span.silence is None:
            span.silence = begin
        if self._heard - span.silence >= max(self._min_silence, 2 * self._pad):
            self._open = None
            yield from self._end(span, span.silence)

    def _end(self, span: _Open, silence: int) -> Iterator[Span]:
        if silence - span.spoken >= self._min_speech:
            yield Span(span.start, min(silence + self._pad, self._heard))

    def _part(self, span: _Open, silence: Span) -> Span:
        """What is before a silence, padded; `span` goes on after it."""
        pad = min(self._pad, len(silence) // 2)
        before = Span(span.start, silence.start + pad)
        span.start = silence.end - pad
        span.silences = [later for later in span.silences if later.start >= silence.end]
        return before
