"""Live turns on made-up hearings: what is agreed never changes, and nothing is lost or doubled."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import checkpoints
from transduce import LLM
from transduce.media.audio import Samples, decode
from transduce.media.voice import FRAME, RATE, Voice, Voiced
from transduce.speech.activity import VadOptions
from transduce.speech.live import Agreement, Turn, follows, script
from transduce.speech.segments import Segment
from transduce.speech.turns import Listener

CLIPS = "samples/sense_and_sensibility_01_austen_64kb-{}.wav"
SECOND = 100
"""Samples of a second, in turns that only tests hear."""
WINDOW = 30 * SECOND
WORD = 40
"""Samples in which a word is spoken."""


def segment(text: str, end: float = 1.0) -> Segment:
    return Segment(0, 0, 0.0, end, text, (), 0.0, -0.1, 1.0, 0.0)


def hear(turn: Turn, *texts: str, language: str = "en") -> str:
    """A hearing of all that is held, in segments of a second."""
    segments = [segment(text, end) for end, text in enumerate(texts, 1)]
    return turn.hear(segments, len(turn.audio()), language)


def going(seconds: float) -> Turn:
    turn = Turn(0, SECOND, WINDOW)
    turn.add(np.zeros(int(seconds * SECOND), np.float32))
    return turn


def test_what_two_hearings_begin_with_is_agreed() -> None:
    turn = going(1)
    assert hear(turn, " And Mr. John") == ""
    assert hear(turn, " and Mr. Jon Dash") == "and Mr."
    assert (turn.text, turn.guess) == ("and Mr.", "Jon Dash")
    assert hear(turn, " and Mr. Jon Dashwood had") == " Jon"
    turn.end()
    assert turn.settle() == " Dashwood had"
    assert (turn.text, turn.guess) == ("and Mr. Jon Dashwood had", "")


def test_the_last_word_waits_for_what_follows() -> None:
    """Where a hearing ends, the model ends a sentence."""
    turn = going(1)
    hear(turn, "He was not.")
    assert hear(turn, "He was not.") == "He was"
    assert hear(turn, "He was not an ill") == " not"


def test_characters_are_agreed_upon_where_words_have_no_spaces() -> None:
    turn = going(1)
    hear(turn, "今日は天", language="ja")
    assert hear(turn, "今日は天気が", language="ja") == "今日は天"
    turn.end()
    assert turn.settle() == "気が"


@pytest.mark.parametrize(
    ("agreed", "heard", "rest"),
    [
        ("", "one two", "one two"),
        ("he can not", "He cannot see", "see"),
        ("in his powder", "in his power to do", "to do"),
        ("no no", "No, no, no", "no"),
        ("the cat sat", "a cat sat down", "down"),
        ("the old man", "old man said", "said"),
        ("old man", "the old man said", "said"),
        ("one two three", "one two", ""),
        ("one two", "", ""),
        ("well", "— well, I", "I"),
    ],
)
def test_where_what_is_agreed_ends_in_other_words(agreed: str, heard: str, rest: str) -> None:
    units = heard.split()
    assert " ".join(units[follows(agreed.split(), units) :]) == rest


def test_the_window_slides_to_the_end_of_the_last_segment_that_is_agreed() -> None:
    turn = going(16)
    hear(turn, " One two.", " Three four.", " Five.")
    assert turn.held == 16 * SECOND
    hear(turn, " One two.", " Three four.", " Five. Six")
    assert (turn.held, turn.context) == (14 * SECOND, "One two. Three four.")
    assert hear(turn, " Five. Six seven") == " Six"
    assert turn.text == "One two. Three four. Five. Six"


def test_a_short_window_stays() -> None:
    turn = going(14)
    hear(turn, " One.", " Two.")
    hear(turn, " One.", " Two. Three")
    assert (turn.held, turn.context) == (14 * SECOND, "")


def test_a_full_window_needs_no_second_hearing_but_for_its_last_segment() -> None:
    turn = going(40)
    assert turn.last
    segments = [segment(" One two.", 20), segment(" Thr", 30)]
    assert turn.hear(segments, WINDOW, "en") == "One two."
    assert (turn.held, turn.guess, turn.context) == (20 * SECOND, "Thr", "One two.")


def test_a_full_window_in_one_segment_is_over() -> None:
    turn = going(40)
    assert turn.hear([segment(" One two.", 30)], WINDOW, None) == "One two."
    assert (turn.held, turn.guess) == (10 * SECOND, "")


def test_a_turn_is_done_when_all_speech_is_heard() -> None:
    turn = going(2)
    hear(turn, " One.")
    assert not turn.done
    turn.add(np.zeros(SECOND, np.float32))
    turn.end(silence=SECOND)
    assert turn.done, "silence alone came since"
    late = going(2)
    hear(late, " One.")
    late.add(np.zeros(SECOND, np.float32))
    late.end()
    assert not late.done
    late.skip(3 * SECOND)
    assert (late.done, late.unheard) == (False, 0), "a hearing that is not believed is none"


def test_a_failed_turn_keeps_no_audio() -> None:
    turn = going(2)
    turn.fail()
    turn.add(np.ones(SECOND, np.float32))
    assert (turn.held, turn.seconds, turn.failed) == (0, 3, True)


WORDS = st.lists(st.sampled_from(["no", "yes", "well", "can", "not", "power", "powder", "a"]), max_size=150)
SEEDS = st.integers(0, 2**32 - 1)


def told(window: Samples, truth: Sequence[str], draw: np.random.Generator, exact: bool) -> list[Segment]:
    """What a model might say: all words that are in the window, in other spelling, the last ones perhaps as others."""
    spoken = window[window >= 0].astype(int)
    words = list(dict.fromkeys(spoken.tolist()))
    texts = [truth[word] for word in words]
    if texts and not exact:
        texts[-1] = texts[-1] if np.sum(spoken == words[-1]) == WORD and draw.random() < 0.5 else "thr"
    segments = []
    for at in range(0, len(words), 5):
        last = words[at : at + 5][-1]
        end = (int(np.flatnonzero(window == last)[-1]) + 1) / SECOND
        text = (" " if exact or draw.random() < 0.9 else "").join(texts[at : at + 5])
        segments.append(segment(text.title() if draw.random() < 0.5 else f"{text}.", end))
    return segments


@given(WORDS, SEEDS)
def test_nothing_is_lost_or_doubled(truth: list[str], seed: int) -> None:
    draw = np.random.default_rng(seed)
    samples = np.repeat(np.arange(len(truth)), WORD).astype(np.float32)
    turn, deltas, at = Turn(0, SECOND, WINDOW), [], 0
    while not turn.done:
        step = int(draw.integers(SECOND // 2, 20 * SECOND))
        turn.add(samples[at : at + step])
        at += step
        if at >= len(samples):
            turn.end()
        while (audio := turn.audio()).size and (turn.last or turn.unheard) and not turn.done:
            deltas.append(turn.hear(told(audio, truth, draw, turn.ended), len(audio), "en"))
            assert turn.text == "".join(deltas)
    deltas.append(turn.settle())
    said = "".join(deltas)
    assert said == turn.text
    assert "".join(filter(str.isalnum, said.casefold())) == "".join(truth)


@given(st.lists(st.lists(st.text("ab .", max_size=12), max_size=4), max_size=12), st.integers(1, 40))
def test_whatever_is_heard_what_is_agreed_stays(hearings: list[list[str]], seconds: int) -> None:
    turn, before = Turn(0, SECOND, WINDOW), ""
    for texts in hearings:
        turn.add(np.zeros(seconds * SECOND, np.float32))
        before += hear(turn, *texts)
        assert turn.text == before
        assert turn.held <= seconds * SECOND * len(hearings)
    turn.end()
    assert turn.text + turn.settle() == turn.text


def test_agreement_takes_the_newest_spelling() -> None:
    agreement = Agreement()
    agreement.hear(["hello", "word"])
    assert agreement.hear(["Hello,", "Word!", "how"]) == ["Hello,", "Word!"]
    assert agreement.settle() == ["how"]


def test_scripts_join_what_they_part() -> None:
    assert script("en").joined(script("en").units(" a  b ")) == "a b"
    assert script("zh").joined(script("zh").units(" 我用 Python ")) == "我用 Python"


class Loud:
    """Hears a voice wherever it is loud."""

    def probabilities(self, pieces: Iterable[Samples]) -> Iterator[Voiced]:
        for piece in pieces:
            frames = piece.reshape(-1, FRAME)
            yield Voiced(np.abs(frames).max(axis=1).astype(np.float32), 0)


OPTIONS = VadOptions(min_silence=0.512, speech_pad=0.32, min_speech=0.128)


def listener(options: VadOptions | None = OPTIONS) -> Listener:
    return Listener(30 * RATE, cast(Voice, cast(Any, Loud())), options)


def sound(*parts: tuple[float, float]) -> Samples:
    """Stretches of a loudness, and of so many seconds."""
    return np.concatenate([np.full(int(seconds * RATE), loud, np.float32) for loud, seconds in parts])


def changes(listener: Listener, samples: Samples, piece: int) -> list[tuple[bool, float]]:
    found = []
    for at in range(0, len(samples), piece):
        found += [(change.begins, change.at / RATE) for change in listener.hear(samples[at : at + piece])]
    return found


SPOKEN = sound((0, 0.96), (1, 1.6), (0, 0.256), (1, 0.96), (0, 1.6), (1, 0.064), (0, 0.64), (1, 1.28))


@pytest.mark.parametrize("piece", [100, FRAME, 5000, len(SPOKEN)])
def test_turns_begin_with_speech_and_end_with_silence(piece: int) -> None:
    """A pause within a turn is none, and neither is a click."""
    heard = listener()
    first, last = 0.96 - 0.32, 6.08 - 0.32
    begins, at = zip(*changes(heard, SPOKEN, piece), strict=True)
    assert begins == (True, False, True)
    assert at == pytest.approx((first, 0.96 + 1.6 + 0.256 + 0.96 + 0.512, last))
    turn = heard.end()
    assert turn is not None
    assert turn.seconds == pytest.approx(len(SPOKEN) / RATE - last)
    assert np.array_equal(turn.audio(), SPOKEN[round(last * RATE) :])
    assert heard.at == len(SPOKEN)


def test_who_goes_on_speaking_after_a_commit_begins_another_turn() -> None:
    heard, spoken = listener(), sound((1, 2.0))
    changes(heard, spoken[:RATE], 1000)
    first = heard.end()
    changes(heard, spoken[RATE:], 1000)
    second = heard.end()
    assert first is not None
    assert second is not None
    assert first.samples + second.samples == len(spoken)
    assert second.start == first.start + first.samples


def test_without_a_voice_a_turn_is_what_was_appended() -> None:
    heard = listener(None)
    assert heard.end() is None
    assert changes(heard, SPOKEN, 1000) == [(True, 0.0)]
    cleared = heard.clear()
    assert cleared is not None
    assert cleared.samples == len(SPOKEN)
    assert changes(heard, SPOKEN, 1000) == [(True, len(SPOKEN) / RATE)]


def test_real_speech_is_what_is_heard_of_it_afterwards() -> None:
    clips = [decode(CLIPS.format(name), RATE) for name in ("0870", "0930")]
    llm, heard, turns = (
        LLM(checkpoints.path("whisper-tiny.en")),
        Listener(30 * RATE, Voice(), VadOptions()),
        list[Turn](),
    )
    gap = np.zeros(RATE, np.float32)
    audio = np.concatenate([gap, clips[0], gap, clips[1], gap, gap])
    for at in range(0, len(audio), RATE):
        turns += [change.turn for change in heard.hear(audio[at : at + RATE]) if change.begins]
        for turn in turns:
            if not turn.done and turn.unheard:
                said = llm.transcribe((turn.audio(), RATE), timestamps=True)
                turn.hear(said.segments, turn.held, said.language)
    assert [turn.ended for turn in turns] == [True, True]
    for turn, clip in zip(turns, clips, strict=True):
        agreed = turn.text
        turn.settle()
        assert turn.text.startswith(agreed)
        assert len(agreed) > len(turn.text) / 3, "much is agreed while it is spoken"
        offline = llm.transcribe((clip, RATE)).text.casefold().split()
        assert SequenceMatcher(None, offline, turn.text.casefold().split()).ratio() > 0.9
