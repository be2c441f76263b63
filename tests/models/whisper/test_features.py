"""Features of parts of a recording, beside transformers' of the whole."""

from typing import Any

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from transduce.media.audio import Excerpt
from transduce.models.whisper.features import LogMel

HOP, WINDOW = 160, 100
EXTRACTOR = WhisperFeatureExtractor(feature_size=10, chunk_length=1)
RECORDING = np.random.default_rng(0).normal(0, 1, 5 * HOP * WINDOW // 2 + 77).astype(np.float32)
RECORDING *= np.linspace(1e-5, 1, len(RECORDING), dtype=np.float32)  # its quiet beginning is cut off by its loud end
FRAMES = len(RECORDING) // HOP


@pytest.mark.parametrize(("first", "last"), [(0, WINDOW), (63, 63 + WINDOW), (FRAMES - 40, FRAMES)])
def test_a_part_is_what_the_whole_has_there(first: int, last: int) -> None:
    log_mel = LogMel(EXTRACTOR)
    options: dict[str, Any] = {
        "sampling_rate": 16000,
        "truncation": False,
        "padding": "longest",
        "return_tensors": "np",
    }
    whole = EXTRACTOR(RECORDING, **options)["input_features"][0]
    level = log_mel.level([RECORDING])
    assert log_mel.level(np.split(RECORDING, [1, 900, 901, 20000, 20016])) == level
    part = log_mel.features(Excerpt(RECORDING, first * HOP, last * HOP, level))
    assert part.shape == (10, WINDOW)
    np.testing.assert_allclose(part[:, : last - first], whole[:, first:last], atol=1e-5)
    assert not part[:, last - first :].any()


@pytest.mark.parametrize("samples", [1, 100, 201, 1600, 5000, WINDOW * HOP - 161, WINDOW * HOP - 1, WINDOW * HOP])
@pytest.mark.parametrize("volume", [0.0, 1e-4, 1.0])
def test_a_clip_is_what_transformers_makes_of_it(samples: int, volume: float) -> None:
    clip = volume * RECORDING[-samples:]
    whole = EXTRACTOR(clip, sampling_rate=16000, return_tensors="np")["input_features"][0]
    np.testing.assert_allclose(LogMel(EXTRACTOR).clip(clip), whole, atol=1e-5)
