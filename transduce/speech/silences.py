"""Where speech ends in a window whose words have times, and what in it is made up of silence.

Owns where the next window begins then, and which segments are dropped, all as in openai/whisper. Knows no tokens and
no samples: times are seconds from the beginning of the audio.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.speech.segments import Segment, Word
from transduce.speech.words import AFTER, BEFORE

UNLIKELY = 0.15
"""Below this probability a word is suspicious; so is one that is shorter or longer, in seconds, than these."""

SHORT, LONG = 0.133, 2.0

FIRST = 8
"""Words by which a segment is judged."""

EDGE = 2.0
"""Seconds at either end of a window that count as silence around a segment."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window. stop: where its audio ends. full: where it would end were it full. end: of the whole recording.

    closed: whether it says when its last segment ends, and begins no other.
    """

    start: float
    stop: float
    full: float
    end: float
    closed: bool


def followed(
    segments: Sequence[Segment], window: Window, spoken: float, threshold: float | None
) -> tuple[Sequence[Segment], float | None]:
    """The segments of a window that are believed, and where the next one begins; None: where its timestamps say.

    spoken: where the last word before the window ends. threshold: the silence beside which suspicious segments are
    dropped; None: none is.
    """
    following = None
    until = speech_end(segments)
    if not window.closed and until is not None and until > window.start:
        most = threshold is not None and window.full - until <= threshold
        following = window.stop if most else until
    if threshold is None:
        return segments, following
    first = _with_words(segments)
    if first is not None and _suspicious(first) and first.start - window.start > threshold:
        return (), first.start
    at = _made_up(segments, window, spoken, threshold)
    if at is None:
        return segments, following
    dropped = segments[at]
    to_the_end = window.end - dropped.end < threshold
    return segments[:at], window.end if to_the_end else max(window.start + 1, dropped.start)


def speech_end(segments: Sequence[Segment]) -> float | None:
    """Where the last word ends, or the last segment if none has words; None where there is none."""
    ends = [word.end for segment in segments for word in segment.words or ()]
    return ends[-1] if ends else segments[-1].end if segments else None


def _made_up(segments: Sequence[Segment], window: Window, spoken: float, threshold: float) -> int | None:
    """The first segment that is suspicious, and beside silence or other such segments on both sides."""
    for at, segment in enumerate(segments):
        if not segment.words:
            continue
        after = _with_words(segments[at + 1 :])
        if _suspicious(segment) and _apart(segment, after, window, spoken, threshold):
            return at
        spoken = segment.end
    return None


def _apart(segment: Segment, after: Segment | None, window: Window, spoken: float, threshold: float) -> bool:
    before = segment.start - spoken > threshold or segment.start < threshold or segment.start - window.start < EDGE
    begins = after.words[0].start if after is not None and after.words else window.stop
    suspicious = after is not None and _suspicious(after)
    return before and (begins - segment.end > threshold or suspicious or window.full - segment.end < EDGE)


def _with_words(segments: Sequence[Segment]) -> Segment | None:
    return next((segment for segment in segments if segment.words), None)


def _suspicious(segment: Segment) -> bool:
    """Whether its first words are too unlikely, short or long to have been spoken."""
    words = [word for word in segment.words or () if word.word not in BEFORE + AFTER][:FIRST]
    score = sum(map(_oddity, words))
    return score >= 3 or score + 0.01 >= len(words)


def _oddity(word: Word) -> float:
    length = word.end - word.start
    return (word.probability < UNLIKELY) + max(0.0, SHORT - length) * 15 + max(0.0, length - LONG)
