"""Speech found in recordings: against Silero's own code, and by what must hold for any probabilities."""

import weakref
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from silero_vad.utils_vad import (  # type: ignore[import-untyped]
    OnnxWrapper,
    get_speech_timestamps_from_probs,
)

from transduce.errors import ConfigError, RequestError
from transduce.media import voice as voices
from transduce.media.audio import Samples, decode
from transduce.media.voice import FRAME, RATE, Voice, Voiced
from transduce.speech.activity import Span, SpanFinder, VadOptions, spans
from transduce.speech.windows import clips, windows

SAMPLES = Path(__file__).parents[2] / "samples"
SAID = [decode(path, RATE) for path in sorted(SAMPLES.glob("*.wav"))]
HIGH, BETWEEN, LOW = 0.9, 0.4, 0.1
SILENCE = [LOW] * 40

runs = st.lists(st.tuples(st.sampled_from([HIGH, LOW]), st.integers(1, 20)), max_size=30)
any_probabilities = st.lists(st.tuples(st.sampled_from([HIGH, BETWEEN, LOW]), st.integers(1, 20)), max_size=30).map(
    lambda runs: [probability for probability, frames in runs for _ in range(frames)]
)


@pytest.fixture(scope="module")
def voice() -> Voice:
    return Voice()


def voiced(probabilities: list[float], end: int) -> Voiced:
    return Voiced(np.array(probabilities, np.float32), end)


def found(probabilities: list[float], options: VadOptions) -> list[Span]:
    finder = SpanFinder(options)
    return [*finder.add(voiced(probabilities, len(probabilities) * FRAME)), *finder.finish()]


@pytest.mark.parametrize("size", [100, FRAME, 10_000, 10**9])
def test_probabilities_are_those_of_the_network_frame_by_frame(voice: Voice, size: int) -> None:
    samples = SAID[1]
    path = distribution("silero-vad").locate_file("silero_vad/data/silero_vad.onnx")
    expected = OnnxWrapper(str(path), force_onnx_cpu=True).audio_forward(torch.from_numpy(samples)[None], RATE)[0]
    blocks = list(voice.probabilities(np.split(samples, range(size, len(samples), size))))
    np.testing.assert_allclose(np.concatenate([block.probabilities for block in blocks]), expected, atol=1e-6)
    assert blocks[-1].end == len(samples)


@pytest.mark.parametrize(("min_speech", "min_silence", "pad"), [(0.25, 0.1, 0.03), (0, 0.16, 0.4), (0, 2.0, 0.4)])
@given(runs)
def test_spans_are_those_of_silero(
    min_speech: float, min_silence: float, pad: float, runs: list[tuple[float, int]]
) -> None:
    """It waits a frame longer for a silence, and takes one that the recording ends in for speech."""
    probabilities = [probability for probability, frames in runs for _ in range(frames)] + [LOW] * 100
    expected = get_speech_timestamps_from_probs(
        probabilities,
        min_speech_duration_ms=1000 * min_speech,
        min_silence_duration_ms=1000 * min_silence,
        speech_pad_ms=1000 * pad,
    )
    options = VadOptions(
        min_speech=min_speech, min_silence=min_silence + FRAME / RATE, speech_pad=pad, max_speech=10_000
    )
    assert [(span.start, span.end) for span in found(probabilities, options)] == [
        (span["start"], span["end"]) for span in expected
    ]


@given(
    any_probabilities, st.sampled_from([0.0, 0.1, 0.4]), st.sampled_from([0.0, 0.16, 2.0]), st.integers(0, FRAME - 1)
)
@example([HIGH] + [LOW] * 20 + [HIGH] * 60 + [LOW] * 20 + [HIGH] + SILENCE * 3, 0.4, 2.0, 0)  # one cut is not enough
def test_no_speech_is_lost_and_little_is_open(
    probabilities: list[float], pad: float, min_silence: float, missing: int
) -> None:
    options = VadOptions(min_speech=0, min_silence=min_silence, speech_pad=pad, max_speech=3)
    whole = len(probabilities) * FRAME
    end = max(0, whole - missing)
    finder, settled, result = SpanFinder(options), [0], []
    for frame, probability in enumerate(probabilities):
        heard = min((frame + 1) * FRAME, end)
        for span in finder.add(voiced([probability], heard)):
            assert span.start >= max(settled)
            result.append(span)
        settled.append(finder.settled)
        assert heard - finder.settled <= (options.max_speech + max(min_silence, 2 * pad)) * RATE + FRAME
    result += finder.finish()
    assert all(left.end <= right.start for left, right in pairwise(result))
    assert all(0 < len(span) <= 3 * RATE and span.end <= end for span in result)
    taken = np.zeros(whole, bool)
    for span in result:
        taken[span.start : span.end] = True
    spoken = np.repeat(np.array(held(probabilities), bool), FRAME)[:end]
    assert taken[:end][spoken].all()


def held(probabilities: list[float]) -> list[bool]:
    """Which frames are speech by the two thresholds."""
    speech = [False]
    for probability in probabilities:
        speech.append(probability == HIGH or (probability == BETWEEN and speech[-1]))
    return speech[1:]


def test_a_span_comes_as_soon_as_it_is_certain() -> None:
    finder = SpanFinder(VadOptions(min_silence=0.1, speech_pad=2 * FRAME / RATE))
    frames = ([HIGH] * 10 + SILENCE)[:14]
    came = [list(finder.add(voiced([frame], (at + 1) * FRAME))) for at, frame in enumerate(frames)]
    assert came == [[]] * 13 + [[Span(0, 12 * FRAME)]]


def test_too_long_a_span_is_cut_in_its_longest_silence() -> None:
    options = VadOptions(speech_pad=0, min_silence=1, max_speech=5)
    probabilities = [HIGH] * 30 + [LOW] * 9 + [HIGH] * 30 + [LOW] * 4 + [HIGH] * 150 + SILENCE
    first, second, third = found(probabilities, options)
    assert (first, second.start) == (Span(0, 30 * FRAME), 39 * FRAME)
    assert (second.end, third) == (69 * FRAME, Span(73 * FRAME, 223 * FRAME))


@pytest.mark.parametrize(("frames", "count"), [(3, 0), (4, 1)])
def test_noise_is_what_is_short_and_apart(frames: int, count: int) -> None:
    blip = SILENCE + [HIGH] * frames + SILENCE
    assert len(found(blip, VadOptions())) == count
    assert len(found([HIGH] * frames + [LOW] * 8 + [HIGH] * 50, VadOptions())) == 2


def test_the_words_are_found_between_silences_of_known_length(voice: Voice) -> None:
    at, parts, expected = 0, list[Samples](), list[Span]()
    for seconds, said in zip((1, 2, 4), SAID, strict=True):
        parts += [np.zeros(seconds * RATE, np.float32), said]
        at += seconds * RATE + len(said)
        expected.append(Span(at - len(said), at))
    options = VadOptions(min_silence=0.8)  # nobody pauses so long within a clip
    result = list(spans([np.concatenate(parts)], voice, options))
    assert len(result) == len(expected)
    for span, true in zip(result, expected, strict=True):
        assert abs(span.start - true.start) <= 0.4 * RATE
        assert abs(span.end - true.end) <= 0.4 * RATE


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(100), np.zeros(RATE)])
def test_silence_holds_no_speech(voice: Voice, samples: Samples) -> None:
    assert list(spans([samples.astype(np.float32)], voice)) == []
    assert list(clips([], voice)) == []


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 70)), max_size=40), st.integers(1, 50))
def test_windows_hold_all_speech_once(gaps: list[tuple[int, int]], most: int) -> None:
    at, speech = 0, []
    for gap, length in gaps:
        speech.append(Span(at + gap, at + gap + length))
        at += gap + length
    packed = list(windows(speech, most))
    assert all(window.end - window.start <= most for window in packed)
    assert all(left.end <= right.start for left, right in pairwise(packed))
    samples = [sample for window in packed for span in window.spans for sample in range(span.start, span.end)]
    assert samples == [sample for span in speech for sample in range(span.start, span.end)]
    for left, right in pairwise(packed):  # full: not even the next span would fit
        assert right.spans[0].end - left.start > most


class Loudness(Voice):
    """Whoever is loud speaks."""

    def __init__(self) -> None:
        self.alive = 0

    def probabilities(self, pieces: Iterable[Samples]) -> Iterator[Voiced]:
        known, end = list[weakref.ref[Samples]](), 0
        for piece in pieces:
            known.append(weakref.ref(piece))
            self.alive = max(self.alive, sum(reference() is not None for reference in known))
            end += len(piece)
            yield Voiced(np.abs(piece.reshape(-1, FRAME)).max(axis=1), end)


def test_hours_are_cut_while_little_is_held() -> None:
    second = 32 * FRAME  # a little more than one
    silence, speech = np.zeros(second, np.float32), np.linspace(0.6, 1, second, dtype=np.float32)
    script = [speech] * 100 + [silence] * 600 + [speech] * 2 + [silence] * 5 + [speech] * 20 + [silence] * 100
    recording, listener = np.concatenate(script), Loudness()
    cut = list(clips((piece.copy() for piece in script), listener))
    assert len(cut) == 5
    assert all(np.array_equal(clip.samples, recording[clip.window.start : clip.window.end]) for clip in cut)
    assert sum(len(span) for clip in cut for span in clip.window.spans) >= 122 * second
    assert listener.alive <= 65


def test_clips_are_the_windows_of_the_spans(voice: Voice) -> None:
    recording = np.concatenate(SAID * 2)
    options = VadOptions(max_speech=8)
    cut = list(clips(np.array_split(recording, 50), voice, options))
    assert [clip.window for clip in cut] == list(windows(spans([recording], voice, options), 8 * RATE))
    assert all(np.array_equal(clip.samples, recording[clip.window.start : clip.window.end]) for clip in cut)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(voices, "distribution", missing)
    with pytest.raises(ConfigError, match=r'silero-vad is not installed; pip install "transduce\[speech\]"'):
        Voice()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("threshold", 0),
        ("threshold", 1.5),
        ("threshold", True),
        ("min_silence", "1"),
        ("neg_threshold", 0.6),
        ("min_speech", -1),
        ("min_silence", float("nan")),
        ("speech_pad", float("inf")),
        ("max_speech", 1.5),
        ("max_speech", float("inf")),
    ],
)
def test_values_that_cannot_work_are_refused(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=field):
        VadOptions(**{field: value})
