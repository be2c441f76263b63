"""Windows of speech side by side: by a decoder that says what it is told to, and by the offline API on a tiny Whisper.

Recordings are the sample clips, joined with silences.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.folders import whisper_folder
from tests.offline import load
from tests.speech.attempts import attempt, output
from transduce import Fallback, MediaError, RequestError, SamplingParams, VadOptions
from transduce.frontend.ahead import Ahead
from transduce.frontend.dialogue import Branches, Dialogue, Done, advance
from transduce.media.audio import Samples, decode
from transduce.models.base import Clock
from transduce.speech.activity import Span
from transduce.speech.fallback import Attempt, Reader
from transduce.speech.parallel import Hearing, parallel
from transduce.speech.sequential import Heard
from transduce.speech.windows import Clip, Window

ZERO, WINDOW_ROWS = 1000, 50
CLOCK = Clock(rate=100, window=3000, frame=1, step=2, zero=ZERO)
SAID = [decode(path, 16_000) for path in sorted((Path(__file__).parents[2] / "samples").glob("*.wav"))]
DOUBTFUL = Fallback(temperatures=(0.0, 0.2, 0.8), logprob_threshold=100.0, no_speech_threshold=None)
SHORT = VadOptions(speech_pad=0, max_speech=1)


def at(seconds: float) -> int:
    return ZERO + round(seconds * 50)


def text(tokens: Sequence[int]) -> str:
    return "".join(chr(token + 65) for token in tokens if token < ZERO)


def clip(*spans: tuple[float, float]) -> Clip:
    """Of spans in seconds; each sample is its number in the recording."""
    window = Window(tuple(Span(round(100 * start), round(100 * end)) for start, end in spans))
    return Clip(window, np.arange(window.start, window.end, dtype=np.float32))


class Decoder:
    """Windows that say what is scripted for where they begin, in seconds. asked: where they were."""

    def __init__(self, script: dict[float, Attempt]) -> None:
        self._script = script
        self.asked: list[tuple[float, float]] = []
        self.told: list[str] = []

    def __call__(self, samples: Samples) -> Dialogue[Attempt]:
        self.asked.append((samples[0] / 100, (samples[-1] + 1) / 100))
        yield from ()
        return self._script[self.asked[-1][0]]

    def tell(self, heard: Sequence[Heard]) -> None:
        self.told.append("".join(segment.text for each in heard for segment in each.segments))

    def hear(self, clips: Iterator[Clip], backwards: bool = False) -> list[tuple[float, float, float, str]]:
        """seek, start, end and text of the segments, all in seconds."""
        hearing = Hearing(CLOCK, Reader(text, frozenset()), Fallback(), self)
        with Ahead(clips, 2) as found:
            dialogue = parallel(found, hearing, self.tell, most=8)
            branches = advance(dialogue, None)
            assert isinstance(branches, Branches)
            assert branches.most == 8
            begun = [*branches.dialogues]
            ends = [advance(branch, None) for branch in (reversed(begun) if backwards else begun)]
            assert all(isinstance(each, Done) for each in ends)
            said = advance(dialogue, [])
        assert isinstance(said, Done)
        segments = [segment for each in said.result for segment in each.segments]
        return [(each.seek / 100, each.start, each.end, each.text) for each in segments]


@pytest.mark.parametrize("backwards", [False, True])
def test_times_are_the_recordings_and_text_is_in_its_order(backwards: bool) -> None:
    script = {
        2.0: attempt((at(0), 0, at(2.0), at(2.5), 1, at(4.0))),
        40.0: attempt((at(0), 2, at(3.0))),
        90.0: attempt((3,)),
    }
    decoder = Decoder(script)
    heard = decoder.hear(iter([clip((2, 6)), clip((40, 43)), clip((90, 91.5))]), backwards)
    assert heard == [(2.0, 2.0, 4.0, "A"), (2.0, 4.5, 6.0, "B"), (40.0, 40.0, 43.0, "C"), (90.0, 90.0, 91.5, "D")]
    assert decoder.told == (["", "", "ABCD"] if backwards else ["AB", "ABC", "ABCD"])


def test_what_is_said_outside_of_speech_is_left_out_and_silence_is_no_part_of_a_segment() -> None:
    stamps = (at(0), 0, at(4.9), at(6), 1, at(8), at(9.8), 2, at(16), at(16), 3, at(20))
    (first, second, third) = Decoder({0.0: attempt(stamps)}).hear(iter([clip((0, 3), (10, 12), (15.9, 20))]))
    assert (first, second, third) == ((0.0, 0.0, 3.0, "A"), (0.0, 10.0, 12.0, "C"), (0.0, 16.0, 20.0, "D"))


def test_speech_behind_the_last_timestamp_is_heard_again() -> None:
    early = attempt((at(0), 0, at(4.0), at(4.0), 1))
    decoder = Decoder({1.0: early, 5.0: attempt((at(0), 1, at(7)))})
    assert decoder.hear(iter([clip((1, 12))])) == [(1.0, 1.0, 5.0, "A"), (5.0, 5.0, 12.0, "B")]
    assert decoder.asked == [(1.0, 12.0), (5.0, 12.0)]
    inexact = Decoder({1.0: early})
    assert inexact.hear(iter([clip((1, 5.9))])) == [(1.0, 1.0, 5.0, "A"), (1.0, 5.0, 5.9, "B")]
    stuck = Decoder({0.0: attempt((at(0), 0, at(0.2), at(0.2), 1))})
    assert stuck.hear(iter([clip((0, 9))])) == [(0.0, 0.0, 0.2, "A"), (0.0, 0.2, 9.0, "B")]


def test_a_window_without_speech_says_nothing_and_one_that_fails_ends_it() -> None:
    silent = attempt((at(0), 0, at(2)), avg_logprob=-1.5, no_speech_prob=0.9)
    script = {0.0: silent, 10.0: attempt((1,)), 20.0: attempt(output=output(error="failed")), 30.0: attempt((2,))}
    clips = [clip((start, start + 2)) for start in script]
    assert Decoder(script).hear(iter(clips)) == [(10.0, 10.0, 12.0, "B")]


def test_audio_that_breaks_off_is_an_error_once_the_windows_before_have_been_heard() -> None:
    def broken() -> Iterator[Clip]:
        yield clip((0, 2))
        raise MediaError("damaged")

    decoder = Decoder({0.0: attempt((0,))})
    with pytest.raises(MediaError, match="damaged"):
        decoder.hear(broken())
    assert decoder.told == ["A"]


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whisper_folder(tmp_path_factory.mktemp("whisper"), seed=2)


def joined(silence: float) -> tuple[Samples, int]:
    quiet = np.random.default_rng(round(10 * silence)).normal(0, 1e-4, round(16_000 * silence)).astype(np.float32)
    return np.concatenate([part for said in SAID for part in (quiet, said)]), 16_000


@pytest.mark.parametrize("vad", [False, SHORT])
def test_a_window_is_encoded_once_for_detection_and_all_attempts(vad: bool | VadOptions, speech: Path) -> None:
    """Though more of them are open than run at once."""
    llm = load(speech, max_num_seqs=16, kv_cache_bytes=4 << 20)
    recordings = [joined(silence) for silence in (3.0, 3.1, 3.2, 3.3, 3.4)]
    asked: dict[str, Any] = {"fallback": DOUBTFUL, "sampling_params": SamplingParams(max_tokens=4), "use_tqdm": False}
    llm.transcribe(recordings, vad_filter=vad, **asked)
    cache, rows = llm.engine.scheduler.cache, llm.engine.scheduler.counters.encoded_rows
    windows = rows // WINDOW_ROWS
    assert windows >= 9 * len(recordings)
    assert cache.queries == 3 * windows + len(recordings)
    assert cache.hits == cache.queries - windows
    assert not cache.leased


def test_segments_are_numbered_and_their_text_is_the_recordings(speech: Path) -> None:
    llm, recording = load(speech, max_num_seqs=4), joined(3.0)
    params = SamplingParams(max_tokens=12)
    said = llm.transcribe(recording, vad_filter=SHORT, fallback=DOUBTFUL, sampling_params=params, use_tqdm=False)
    assert said.error is None
    assert said.language_probability is not None
    assert said.duration == pytest.approx(len(recording[0]) / 16_000)
    assert [segment.id for segment in said.segments] == [*range(len(said.segments))]
    assert [segment.seek for segment in said.segments] == sorted(segment.seek for segment in said.segments)
    assert said.text == "".join(segment.text for segment in said.segments).strip()
    quiet = [0.0, 3.0 + len(SAID[0]) / 16_000]
    assert all(not start + 0.5 < each.start < start + 2.5 for each in said.segments for start in quiet)


def test_many_recordings_are_heard_as_each_alone(speech: Path) -> None:
    llm, params = load(speech, max_num_seqs=4), SamplingParams(temperature=0.0, max_tokens=8)
    silence = (np.zeros(40_000, np.float32), 16_000)
    recordings: list[Any] = [joined(0.5), silence, (SAID[1], 16_000), b"noise"]
    together = llm.transcribe(recordings, vad_filter=SHORT, sampling_params=params, use_tqdm=False)
    assert "cannot read audio of 5 bytes" in (together[3].error or "")
    for recording, said in zip(recordings[:3], together, strict=False):
        alone = llm.transcribe(recording, vad_filter=SHORT, sampling_params=params, use_tqdm=False)
        assert (alone.text, alone.segments, alone.duration) == (said.text, said.segments, said.duration)
    assert (together[1].error, together[1].text, together[1].segments) == (None, "", ())
    assert together[1].duration == 2.5
    assert together[2].segments
    with pytest.raises(RequestError, match="vad_filter of type dict: give True, False or VadOptions"):
        llm.transcribe(silence, vad_filter={"threshold": 0.5})
