"""What a window's words say about the next window, and which segments are not believed, by hand from openai/whisper."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from transduce.errors import RequestError
from transduce.speech.asked import Speech
from transduce.speech.segments import Segment, Word
from transduce.speech.silences import Window, followed, speech_end


def said(start: float, *ends: float, probability: float = 0.9) -> Segment:
    """Words one after the other, of any probability."""
    words = [Word(" a", *times, probability) for times in zip((start, *ends), ends, strict=False)]
    return Segment(0, 0, start, ends[-1] if ends else start + 1, " a", (), 0, 0, 0, 0, tuple(words))


def noise(start: float, end: float) -> Segment:
    """A single unlikely word."""
    return said(start, end, probability=0.1)


OPEN = Window(start=60.0, stop=90.0, full=90.0, end=300.0, closed=False)
CLOSED = Window(start=60.0, stop=90.0, full=90.0, end=300.0, closed=True)
LAST = Window(start=60.0, stop=70.0, full=90.0, end=70.0, closed=True)
SPEECH = said(60.5, 61.0, 61.5)
LATER = said(80.0, 80.5, 81.0)


@pytest.mark.parametrize(
    ("segments", "window", "threshold", "kept", "following"),
    [
        # The next window begins after the last word, unless a timestamp says that no more is said in this one.
        ([SPEECH, LATER], OPEN, None, 2, 81.0),
        ([SPEECH, LATER], CLOSED, None, 2, None),
        ([SPEECH, said(70.0)], OPEN, None, 2, 61.5),
        ([said(70.0)], OPEN, None, 1, 71.0),
        ([], OPEN, None, 0, None),
        ([said(60.0, 60.0)], OPEN, None, 1, None),
        # Little silence at the end is not heard again.
        ([SPEECH, LATER], OPEN, 8.0, 2, 81.0),
        ([SPEECH, LATER], OPEN, 9.5, 2, 90.0),
        # Noise at the beginning after silence: the next window begins there.
        ([noise(65.0, 66.0), LATER], CLOSED, 4.0, 0, 65.0),
        ([noise(65.0, 66.0)], CLOSED, None, 1, None),
        # Noise between silences: so does what follows it.
        ([SPEECH, noise(70.0, 71.0), LATER], CLOSED, 4.0, 1, 70.0),
        ([SPEECH, noise(70.0, 71.0), noise(72.0, 73.0)], CLOSED, 4.0, 1, 70.0),
        ([SPEECH, noise(63.0, 64.0), LATER], CLOSED, 4.0, 3, None),
        ([SPEECH, noise(70.0, 71.0), said(72.0, 72.5)], CLOSED, 4.0, 3, None),
        # At the window's beginning it is passed by at least a second; at the recording's end nothing is heard again.
        ([noise(60.2, 61.0), LATER], CLOSED, 4.0, 0, 61.0),
        ([SPEECH, noise(68.0, 69.0)], LAST, 4.0, 2, None),
        ([SPEECH, noise(66.0, 67.0)], LAST, 4.0, 2, None),
        ([SPEECH, noise(66.0, 67.0), noise(67.0, 68.0)], LAST, 4.0, 1, 70.0),
    ],
)
def test_windows_follow_words(
    segments: Sequence[Segment], window: Window, threshold: float | None, kept: int, following: float | None
) -> None:
    found, begins = followed(segments, window, 60.0, threshold)
    assert (list(found), begins) == (segments[:kept], following)


@pytest.mark.parametrize(
    ("segment", "suspicious"),
    [
        (said(70.0, 70.5, 71.0, 71.5, 72.0), False),
        (said(70.0, 70.5, 71.0, 71.5, 72.0, probability=0.14), True),
        (said(70.0, 70.1, 70.2, 70.3, 70.4), False),
        (said(70.0, 70.05, 70.1, 70.15, 70.2), True),
        (said(70.0, 73.5, 73.9), False),
        (said(70.0, 75.5, 75.9, 76.4, 76.8), True),
    ],
    ids=["likely", "unlikely", "brief", "short", "slow", "long"],
)
def test_words_that_nobody_speaks(segment: Segment, suspicious: bool) -> None:
    kept, _ = followed([SPEECH, segment, said(85.0, 85.5)], CLOSED, 60.0, 4.0)
    assert (len(kept) == 1) == suspicious


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"word_timestamps": True}, r"=-1: give a number"),
        ({"word_timestamps": True, "hallucination_silence_threshold": math.nan}, r"=nan: give a number"),
        ({"hallucination_silence_threshold": 2}, r"=2: .*word_timestamps=True"),
        ({"word_timestamps": True, "vad_filter": True, "hallucination_silence_threshold": 2}, r"=2: with vad_filter"),
    ],
)
def test_silence_is_between_words_that_are_all_heard(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=f"hallucination_silence_threshold{message}"):
        Speech(**{"hallucination_silence_threshold": -1, **asked})


def test_speech_ends_with_the_last_word() -> None:
    assert speech_end([SPEECH, said(70.0)]) == 61.5
    assert speech_end([said(70.0)]) == 71.0
    assert speech_end([]) is None
