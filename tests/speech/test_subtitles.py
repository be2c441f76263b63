"""Formats of transcripts against what they should look like, and layouts against their limits."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import RequestError
from transduce.speech.segments import Segment, Word
from transduce.speech.subtitles import Layout, cues, srt, text, tsv, txt, verbose_json, vtt

NUMBERS: dict[str, Any] = {"temperature": 0.0, "avg_logprob": -0.25, "compression_ratio": 1.5, "no_speech_prob": 0.125}


def segment(said: str, start: float, end: float, words: Sequence[Word] | None = None) -> Segment:
    return Segment(0, 0, start, end, said, (50364, 11), words=None if words is None else tuple(words), **NUMBERS)


def spoken(said: str, start: float, each: float = 0.5) -> Segment:
    """A segment whose words follow each other, `each` seconds long."""
    pieces = re.findall(r"\s*\S+", said)
    words = [Word(piece, start + i * each, start + (i + 1) * each, 0.9) for i, piece in enumerate(pieces)]
    return segment(said, start, start + len(pieces) * each, words)


def shown(segments: Sequence[Segment], **limits: int) -> list[tuple[int, int, str]]:
    return [(cue.start, cue.end, cue.text) for cue in cues(segments, Layout(**limits))]


TALK = [segment(" Hello there.", 0, 1.5), segment(" ", 2, 3), segment(" A\tB & <c>\n\n--> 'd'", 59.9995, 360_000)]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (text, "Hello there.  A\tB & <c>\n\n--> 'd'"),
        (txt, "Hello there.\nA B & <c>  --> 'd'\n"),
        (tsv, "start\tend\ttext\n0\t1500\tHello there.\n60000\t360000000\tA B & <c>  --> 'd'\n"),
        (
            srt,
            "1\n00:00:00,000 --> 00:00:01,500\nHello there.\n\n"
            "2\n00:01:00,000 --> 100:00:00,000\nA B & <c>  -> 'd'\n\n",
        ),
        (
            vtt,
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello there.\n\n"
            "00:01:00.000 --> 100:00:00.000\nA B &amp; &lt;c&gt;  --&gt; 'd'\n\n",
        ),
    ],
)
def test_format(write: Callable[[Sequence[Segment]], str], expected: str) -> None:
    assert write(TALK) == expected


@pytest.mark.parametrize(
    ("write", "expected"), [(text, ""), (txt, ""), (srt, ""), (vtt, "WEBVTT\n\n"), (tsv, "start\tend\ttext\n")]
)
def test_format_of_nothing(write: Callable[[Sequence[Segment]], str], expected: str) -> None:
    assert write([]) == expected


def test_verbose_json() -> None:
    said = spoken(" Né à", 1.0)
    about = {"task": "transcribe", "language": "french", "duration": 9.5}
    listed = {"id": 0, "seek": 0, "start": 1.0, "end": 2.0, "text": " Né à", "tokens": [50364, 11], **NUMBERS}
    words = [
        {"word": "Né", "start": 1.0, "end": 1.5, "probability": 0.9},
        {"word": "à", "start": 1.5, "end": 2.0, "probability": 0.9},
    ]

    def written(*granularities: str) -> object:
        return json.loads(
            verbose_json([said], task="transcribe", language="french", duration=9.5, granularities=granularities)
        )

    assert written("segment") == {**about, "text": "Né à", "segments": [listed]}
    assert written("word") == {**about, "text": "Né à", "words": words}
    assert written("segment", "word") == {**about, "text": "Né à", "segments": [listed], "words": words}


def test_what_a_model_does_not_say_is_null() -> None:
    said = replace(segment(" Hi.", 0, 1), no_speech_prob=math.nan)
    (listed,) = json.loads(verbose_json([said], task="transcribe", language="en", duration=1.0))["segments"]
    assert (listed["no_speech_prob"], listed["text"]) == (None, " Hi.")


def test_cue_has_the_times_of_its_words() -> None:
    assert shown([segment(" Hi.", 0, 9, [Word(" Hi.", 4.25, 4.5, 1.0)])]) == [(4250, 4500, "Hi.")]


def test_width_alone_wraps_within_the_segment() -> None:
    said = [spoken(" one two three", 0), spoken(" extraordinary four", 1.5)]
    assert shown(said, max_line_width=7) == [(0, 1500, "one two\nthree"), (1500, 2500, "extraordinary\nfour")]


def test_cues_of_so_many_lines_go_on_until_a_pause() -> None:
    said = [spoken(" one two three", 0), spoken(" four five six", 1.5), spoken(" seven", 6)]
    assert shown(said, max_line_width=7, max_line_count=2) == [
        (0, 1500, "one two\nthree"),
        (1500, 2500, "four\nfive"),
        (2500, 3000, "six"),
        (6000, 6500, "seven"),
    ]


def test_no_line_of_a_cue_is_empty() -> None:
    words = [Word(" ", 0, 1, 0.5), Word(" extraordinary", 1, 2, 0.5)]
    assert shown([segment("  extraordinary", 0, 2, words)], max_line_width=5) == [(0, 2000, "extraordinary")]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (14, "He was not an\nill-disposed\nyoung man."),
        (10, "He was not\nan ill\n-disposed\nyoung man."),
        (17, "He was not an\nill-disposed\nyoung man."),
    ],
)
def test_what_no_space_parts_stays_on_its_line(width: int, lines: str) -> None:
    words = (" He", " was", " not", " an", " ill", "-disposed", " young", " man.")
    said = segment("".join(words), 0, 8, [Word(each, at, at + 1, 0.9) for at, each in enumerate(words)])
    assert shown([said], max_line_width=width) == [(0, 8000, lines)]


def test_so_many_words_are_a_cue() -> None:
    assert shown([spoken(" a b c", 0), spoken(" d", 2)], max_words_per_line=2) == [
        (0, 1000, "a b"),
        (1000, 1500, "c"),
        (2000, 2500, "d"),
    ]


def test_without_word_times_characters_share_the_segment() -> None:
    assert shown([segment(" abc defghijkl ", 10, 24)], max_line_width=6, max_line_count=1) == [
        (10_000, 14_000, "abc"),
        (14_000, 21_000, "defghi"),
        (21_000, 24_000, "jkl"),
    ]
    assert shown([segment("私は学生です", 0, 6)], max_line_width=4) == [(0, 6000, "私は学生\nです")]
    assert shown([segment("私は学生です", 0, 6)], max_line_width=10**20) == [(0, 6000, "私は学生です")]


def test_overlap_stays_and_every_cue_lasts() -> None:
    said = [segment("a", 1, 3), segment("b", 2, 2), segment("c", 5, 4)]
    assert shown(said) == [(1000, 3000, "a"), (2000, 2001, "b"), (5000, 5001, "c")]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_line_width": 0}, "max_line_width=0"),
        ({"max_line_count": 2}, "max_line_count=2: give max_line_width too"),
        ({"max_words_per_line": 3, "max_line_width": 40}, "max_words_per_line=3: give either"),
    ],
)
def test_limits_that_do_not_work_are_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Layout(**limits)


UTTERANCES = st.lists(st.text(st.sampled_from("ab é字\n\u2028\x00"), max_size=30), max_size=4)


@given(UTTERANCES, st.integers(1, 9), st.integers(1, 3), st.booleans())
def test_nothing_is_lost_and_limits_hold(utterances: list[str], width: int, count: int, timed: bool) -> None:
    said = [spoken(u, 2.0 * i) if timed else segment(u, 2.0 * i, 2.0 * i + 2) for i, u in enumerate(utterances)]
    made = list(cues(said, Layout(max_line_width=width, max_line_count=count)))
    letters = "".join(re.findall("[abé字]", "".join(utterances)))
    assert "".join(re.findall("[abé字]", "".join(cue.text for cue in made))) == letters
    longest = max((len(piece) for u in utterances for piece in u.split()), default=0) if timed else 0
    for cue in made:
        lines = cue.text.split("\n")
        assert len(lines) <= count
        assert all(0 < len(line) <= max(width, longest) for line in lines)
        assert cue.start < cue.end
