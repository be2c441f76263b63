from pathlib import Path

import numpy as np
import pytest

from benchmarks.clips import RATE, draw, load, seconds

SAMPLES = Path(__file__).parents[2] / "samples"
CLIPS = [np.full(RATE * n, n / 10, np.float32) for n in (1, 2, 3)]


def test_the_samples_are_there() -> None:
    assert len(load(SAMPLES)) == 3


def test_a_folder_without_speech_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no WAV file"):
        load(tmp_path)


def test_clips_are_cut_into_calls_and_repeat_evenly() -> None:
    calls = draw(CLIPS, 6, 4, np.random.default_rng(0))
    assert [len(call) for call in calls] == [4, 2]
    assert sorted(len(clip) // RATE for call in calls for clip in call) == [1, 1, 2, 2, 3, 3]
    assert seconds(calls) == 12


def test_a_repeated_clip_has_other_noise() -> None:
    first, second = draw(CLIPS[:1], 2, 2, np.random.default_rng(0))[0]
    assert not np.array_equal(first, second)
    assert np.abs(first - second).max() < 0.02
