"""Channels that are heard by themselves: their order, their labels, and what becomes of errors."""

from functools import partial
from typing import Any

import pytest

from tests.speech.attempts import output
from transduce.errors import RequestError
from transduce.frontend.dialogue import Branches, Dialogue, Done, advance
from transduce.speech.channels import separately
from transduce.speech.segments import Segment
from transduce.speech.subtitles import Layout, srt, text, txt, verbose, vtt
from transduce.speech.transcription import At, Transcription

MEASURES: dict[str, Any] = {"temperature": 0.0, "avg_logprob": -0.25, "compression_ratio": 1.5, "no_speech_prob": 0.125}


def said(start: float, end: float, words: str) -> Segment:
    return Segment(0, 0, start, end, f" {words}", (1,), **MEASURES)


def channel(*segments: Segment, language: str = "en", error: str | None = None) -> Transcription:
    spoken = "".join(segment.text for segment in segments).strip()
    return Transcription(spoken, language, output((1, 2), error=error, encoder_rows=50), segments, 9.0, 0.75)


def hear(heard: Transcription | RequestError, at: At) -> Dialogue[Transcription]:
    yield from ()
    at(4.0, 9.0)
    if isinstance(heard, RequestError):
        raise heard
    return heard


def together(*heard: Transcription | RequestError, marks: bool = False) -> tuple[Transcription, list[float]]:
    reached: list[float] = []
    each = [partial(hear, one) for one in heard]
    dialogue = separately(each, marks, lambda seconds, duration: reached.append(seconds))
    branches = advance(dialogue, None)
    assert isinstance(branches, Branches)
    assert all(isinstance(advance(branch, None), Done) for branch in branches.dialogues)
    end = advance(dialogue, [])
    assert isinstance(end, Done)
    return end.result, reached


LEFT = channel(said(0, 1, "Hello."), said(2, 3, "Fine."), said(3, 4, "Bye."))
RIGHT = channel(said(1.5, 2.5, "How are you?"), language="de")


def test_segments_are_in_the_order_of_time() -> None:
    heard, reached = together(channel(language="fr"), LEFT, RIGHT)
    assert [(each.id, each.channel, each.start) for each in heard.segments] == [
        (0, 2, 0),
        (1, 3, 1.5),
        (2, 2, 2),
        (3, 2, 3),
    ]
    assert heard.text == "[2] Hello.\n[3] How are you?\n[2] Fine. Bye."
    assert (heard.language, heard.language_probability, heard.duration) == ("en", 0.75, 9.0)
    assert (heard.output.outputs[0].token_ids, heard.output.encoder_rows) == ([1, 2] * 3, 150)
    assert reached == [4 / 3, 8 / 3, 4.0]
    at_once, _ = together(channel(said(1, 9, "Long.")), channel(said(1, 2, "Short.")))
    assert at_once.text == "[1] Long.\n[2] Short."
    marked, _ = together(LEFT, marks=True)
    assert marked.text.startswith("[1] <|0.00|> Hello.<|1.00|><|2.00|>")


def test_one_that_fails_fails_all() -> None:
    assert together(LEFT, channel(error="the step failed"), RIGHT)[0].error == "the step failed"
    with pytest.raises(RequestError, match="too short"):
        together(LEFT, RequestError("too short"))


def test_channels_are_labelled_and_share_no_cue() -> None:
    segments = together(LEFT, RIGHT)[0].segments
    assert txt(segments) == "[1] Hello.\n[2] How are you?\n[1] Fine.\n[1] Bye.\n"
    cues = [
        block.splitlines()[-1]
        for block in srt(segments, Layout(max_line_width=40, max_line_count=1)).split("\n\n")[:-1]
    ]
    assert cues == ["[1] Hello. Fine. Bye.", "[2] How are you?"]
    assert "00:00:01.500 --> 00:00:02.500\n<v Channel 2>How are you?\n" in vtt(segments)
    listed = verbose(segments, task="transcribe", language="en", duration=9, granularities=["segment"])
    assert [each["channel"] for each in listed["segments"]] == [1, 2, 1, 1]
    alone = verbose(LEFT.segments, task="transcribe", language="en", duration=9, granularities=["segment"])
    assert "channel" not in alone["segments"][0]
    assert text(LEFT.segments) == "Hello. Fine. Bye."
