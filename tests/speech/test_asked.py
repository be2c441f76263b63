"""What may be asked of a transcription, and in which forms."""

import math
from dataclasses import fields
from typing import Any

import pytest

from transduce.errors import RequestError
from transduce.speech.asked import Options, Speech, known


def test_options_are_those_of_a_speech() -> None:
    theirs = {field.name for field in fields(Speech) if field.init}
    assert theirs - Options.__annotations__.keys() == {"language", "task", "prompt", "max_seconds", "salt"}
    assert Options.__annotations__.keys() <= theirs


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (None, ()),
        ("", ()),
        ("0", ()),
        ([0], ()),
        ("1.5", ((1.5, None),)),
        ("0,2", ((0.0, 2.0),)),
        ([1, 2.5, 2.5, 3, 7], ((1.0, 2.5), (2.5, 3.0), (7.0, None))),
    ],
)
def test_parts(given: Any, parts: tuple[Any, ...]) -> None:
    assert Speech(clip_timestamps=given).parts == parts


@pytest.mark.parametrize(
    ("given", "suppressed"), [(None, None), ("", ()), ("[]", ()), ([], ()), ("-1", (-1,)), ([-1, 7], (-1, 7))]
)
def test_suppressed(given: Any, suppressed: tuple[int, ...] | None) -> None:
    assert Speech(suppress_tokens=given).suppressed == suppressed


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"clip_timestamps": "1,1"}, "clip_timestamps=.*: 1 is not after 1"),
        ({"clip_timestamps": [3, 4, 2]}, "clip_timestamps=.*: 2 is not after 4"),
        ({"clip_timestamps": [-1]}, "clip_timestamps=-1: give a number"),
        ({"clip_timestamps": [*range(1001)]}, "clip_timestamps=.*1001 numbers.*: give at most 1000"),
        ({"clip_timestamps": "1;2"}, "clip_timestamps='1;2': '1;2' is none; give numbers"),
        ({"clip_timestamps": 3}, "clip_timestamps=3: give a list"),
        ({"clip_timestamps": "1", "vad_filter": True}, "clip_timestamps='1': with vad_filter"),
        ({"suppress_tokens": "-2"}, "suppress_tokens=-2: give a whole number >= -1"),
        ({"suppress_tokens": ["a"]}, "suppress_tokens=.*'a' is none"),
        ({"prefix": "So", "vad_filter": True}, "prefix='So': with vad_filter"),
        ({"channels": "left"}, "channels='left': give mix or separate"),
        ({"hotwords": 3}, "hotwords=3: give a text"),
        ({"prompt": ["So"]}, "prompt=.*: give a text"),
        ({"language": b"en"}, "language=b'en': give a text"),
        ({"hallucination_silence_threshold": "2", "word_timestamps": True}, "threshold='2': give a number"),
        ({"hallucination_silence_threshold": math.nan, "word_timestamps": True}, "threshold=nan: give a number"),
        ({"suppress_tokens": "a" * 999}, f"suppress_tokens='{'a' * 58}…: '{'a' * 58}… is none"),
        ({"patience": 2.0}, "patience=2.0: it is for beams"),
    ],
)
def test_refusals(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Speech(**asked)


def test_an_option_that_is_none_is_one_of_transcribe() -> None:
    with pytest.raises(TypeError, match=r"transcribe\(\) got an unexpected keyword argument 'bogus'"):
        known({"prefix": "So", "bogus": 1})  # type: ignore[typeddict-unknown-key]
