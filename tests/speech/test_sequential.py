"""Windows of long audio, by a decoder that says what it is told to: where they begin, and what they are told."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest

from tests.speech.attempts import attempt, output
from transduce.errors import RequestError
from transduce.frontend.dialogue import Dialogue, Done, advance
from transduce.models.base import Clock
from transduce.speech.fallback import Attempt, Fallback, Reader
from transduce.speech.segments import Word
from transduce.speech.sequential import Context, Heard, Pace, Piece, Recording, cut, sequential
from transduce.speech.words import Timed

ZERO = 100
CLOCK = Clock(rate=100, window=100, frame=1, step=2, zero=ZERO)
"""A window is a second, a frame a hundredth and a timestamp two."""


def text(tokens: Sequence[int]) -> str:
    return "".join(chr(token + 65) if token else " " for token in tokens if token < ZERO)


def at(hundredths: int) -> int:
    return ZERO + hundredths // 2


@pytest.mark.parametrize(
    ("tokens", "pieces"),
    [
        ((), [Piece(0, None, ())]),
        ((1, 2), [Piece(0, None, (1, 2))]),
        ((at(4), 1), [Piece(0, 4, (at(4), 1))]),
        ((at(0), 1), [Piece(0, None, (at(0), 1))]),
        ((at(4), 1, at(8)), [Piece(0, 8, (at(4), 1, at(8)))]),
        ((at(4), 1, at(8), at(8)), [Piece(4, 8, (at(4), 1, at(8))), Piece(8, None, (at(8),))]),
        ((at(4), 1, at(8), at(12), 2), [Piece(4, 8, (at(4), 1, at(8))), Piece(12, None, (at(12), 2))]),
        ((at(4), 1, at(8), at(12), 2, at(20)), [Piece(4, 8, (at(4), 1, at(8))), Piece(12, 20, (at(12), 2, at(20)))]),
    ],
)
def test_tokens_are_cut_at_pairs_of_timestamps(tokens: tuple[int, ...], pieces: list[Piece]) -> None:
    assert cut(tokens, CLOCK) == pieces


class Decoder:
    """Windows that say, one after the other, what is scripted. asked: where they were, and what they were told."""

    def __init__(self, *script: Attempt) -> None:
        self._script = iter(script)
        self.asked: list[tuple[int, int, Context]] = []

    def __call__(self, start: int, stop: int, context: Context) -> Dialogue[Attempt]:
        self.asked.append((start, stop, context))
        yield from ()
        return next(self._script)


def heard(
    decoder: Decoder, samples: int, prompt: str | None = None, condition: bool = True, pace: Pace | None = None
) -> list[Heard]:
    recording = Recording(samples, CLOCK, Reader(text, frozenset()))
    said = advance(sequential([recording], decoder, Fallback(), prompt, condition, pace=pace), None)
    assert isinstance(said, Done)
    return said.result


def segments(windows: Sequence[Heard]) -> list[tuple[int, float, float, str]]:
    return [(each.seek, each.start, each.end, each.text) for window in windows for each in window.segments]


def test_a_window_begins_where_the_last_finished_segment_ends() -> None:
    decoder = Decoder(
        attempt((at(4), 1, at(40), at(60), 2)),  # 2 is left to the next window
        attempt((at(0), 2, at(70))),  # alone at the end: nobody says more in that window
        attempt((3,)),
        attempt((at(4), 4, at(60))),  # which is behind the recording's end
    )
    assert segments(heard(decoder, 250)) == [
        (0, 0.04, 0.4, "B"),
        (40, 0.4, 1.1, "C"),
        (140, 1.4, 2.4, "D"),
        (240, 2.4, 2.5, "E"),
    ]
    assert [(start, stop) for start, stop, _ in decoder.asked] == [(0, 100), (40, 140), (140, 240), (240, 250)]


def test_the_next_window_is_always_a_later_one() -> None:
    decoder = Decoder(*[attempt((at(0), 1, at(0), at(0), 2))] * 2)
    assert segments(heard(decoder, 150)) == [(0, 0.0, 0.0, ""), (100, 1.0, 1.0, "")]
    assert [start for start, _, _ in decoder.asked] == [0, 100]


def test_parts_are_heard_and_no_more() -> None:
    whole = Recording(355, CLOCK, Reader(text, frozenset()))
    parts = [whole.part(*each) for each in ((0.1, 0.5), (0.5, 2.0), (3.0, None))]
    decoder = Decoder(*[attempt((at(0), 1, at(60)))] * 4)
    said = advance(sequential(parts, decoder, Fallback(), None, True), None)
    assert isinstance(said, Done)
    assert [asked[:2] for asked in decoder.asked] == [(10, 50), (50, 150), (150, 200), (300, 355)]
    assert [(start, end) for _, start, end, _ in segments(said.result)] == [
        (0.1, 0.5),
        (0.5, 1.1),
        (1.5, 2.0),
        (3.0, 3.55),
    ]
    assert whole.part(0.0, 3.554).samples == 355
    for times in ((3.55, None), (1.0, 3.6), (9.0, 10.0), (0.0, inf), (1.0, 1e308)):
        with pytest.raises(RequestError, match=r"clip_timestamps has .* and the audio is 3\.55 s long"):
            whole.part(*times)
    for times in ((0.0, 0.001), (1.0, 1.004)):
        with pytest.raises(RequestError, match=r"a part of less than 0\.01 s at .; give longer ones"):
            whole.part(*times)


def test_a_window_without_speech_says_nothing() -> None:
    silent = attempt((at(0), 1, at(40), at(40)), avg_logprob=-1.5, no_speech_prob=0.9)
    windows = heard(Decoder(silent, replace(silent, avg_logprob=-0.5), attempt((2,))), 210)
    assert segments(windows) == [(100, 1.0, 1.4, "B"), (140, 1.4, 2.1, "C")]


def test_windows_are_told_what_came_before() -> None:
    hot = attempt((at(0), 2, at(100)), temperature=0.6)
    said = [attempt((at(0), 1, at(100))), attempt((0,)), hot, attempt((3,)), attempt((4,))]
    decoder = Decoder(*said)
    heard(decoder, 500, "Before.")
    first = (at(0), 1, at(100))
    assert [context for _, _, context in decoder.asked] == [
        {"prompt": "Before.", "previous": ()},
        {"prompt": "Before.", "previous": first},
        {"prompt": "Before.", "previous": first},
        {"prompt": None, "previous": ()},
        {"prompt": None, "previous": (3,)},
    ]
    unconditioned = Decoder(*said)
    heard(unconditioned, 500, "Before.", condition=False)
    assert [context["prompt"] for _, _, context in unconditioned.asked] == ["Before.", None, None, None, None]
    assert not any(context["previous"] for _, _, context in unconditioned.asked)


def test_a_window_that_fails_ends_it() -> None:
    lost = attempt(output=output(error="the step failed"))
    first, last = heard(Decoder(attempt((1,)), lost), 300)
    assert (len(first.segments), first.attempt.failed) == (1, False)
    assert (last.segments, last.attempt.failed) == ((), True)


class Timer:
    """Words that end when it is scripted, one of each segment. asked: where the windows were, and what was said."""

    def __init__(self, *ends: float, error: str | None = None) -> None:
        self._ends, self._error = iter(ends), error
        self.asked: list[tuple[int, int, float]] = []

    def __call__(self, window: Heard, start: int, stop: int, spoken: float) -> Dialogue[Heard]:
        self.asked.append((start, stop, spoken))
        yield from ()
        ends = [next(self._ends) for _ in window.segments] if self._error is None else []
        timed = [
            replace(segment, end=end, words=(Word(segment.text, segment.start, end, 0.9),))
            for segment, end in zip(window.segments, ends, strict=False)
        ]
        return window.worded(Timed(tuple(timed), self._error))


def test_a_window_begins_where_words_end() -> None:
    decoder = Decoder(
        attempt((at(4), 1, at(40), at(60), 2)),
        attempt((at(0), 2, at(70))),  # alone at the end: nobody says more in that window
        attempt((3,)),
        attempt((at(4), 4, at(20), at(20), 5, at(70))),
    )
    timer = Timer(0.3, 0.9, 1.8, 1.84, 2.4)
    windows = heard(decoder, 250, pace=Pace(timer))
    assert segments(windows) == [
        (0, 0.04, 0.3, "B"),
        (30, 0.3, 0.9, "C"),
        (130, 1.3, 1.8, "D"),
        (180, 1.84, 1.84, ""),  # its word left it no time
        (180, 2.0, 2.4, "F"),
    ]
    assert timer.asked == [(0, 100, 0.0), (30, 130, 0.3), (130, 230, 0.9), (180, 250, 1.8)]


def test_words_that_cannot_be_had_end_it() -> None:
    (window,) = heard(Decoder(attempt((1,))), 300, pace=Pace(Timer(error="the step failed")))
    assert (window.segments, window.attempt.output.error) == ((), "the step failed")
