"""From weights to the row where each token begins: transformers' filter and warping, on the same weights."""

import numpy as np
import pytest
import torch
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter

from transduce.speech.alignment import BLOCK, normalized, onsets, smoothed, warped


@pytest.mark.parametrize(("tokens", "rows"), [(BLOCK + 5, 90), (1, 30), (7, 4), (7, 3), (12, 5)])
def test_weights_are_told_apart_and_smoothed(tokens: int, rows: int) -> None:
    weights = np.random.default_rng(rows).random((3, tokens, rows), dtype=np.float32) ** 4
    normal = torch.from_numpy(normalized(weights))
    if tokens > 1:
        spread, mean = torch.std_mean(torch.from_numpy(weights), dim=-2, keepdim=True, unbiased=False)
        torch.testing.assert_close(normal, (torch.from_numpy(weights) - mean) / spread, rtol=0, atol=1e-5)
    assert np.array_equal(smoothed(normal.numpy()), _median_filter(normal[None], 7)[0].numpy())


def test_a_row_that_all_tokens_look_at_alike_says_nothing() -> None:
    """There transformers and openai/whisper divide by zero."""
    weights = np.zeros((1, 3, 40), dtype=np.float32)
    weights[0, 0, :15] = weights[0, 1, 15:30] = weights[0, 2, 35:] = 1
    assert onsets(weights, 0, 3).tolist() == [0, 15, 30]


@pytest.mark.parametrize("seed", range(6))
def test_the_path_is_that_of_transformers(seed: int) -> None:
    """Texts longer than rows too. Of equal ways openai/whisper and transformers may take a worse one, which is not."""
    rng = np.random.default_rng(seed)
    for tokens, rows in ((1, 1), (1, 9), (9, 1), (5, 60), (40, 30), (60, 200)):
        gains = rng.standard_normal((tokens, rows))
        text, time = _dynamic_time_warping(-gains)
        assert warped(gains).tolist() == time[np.flatnonzero(np.diff(text, prepend=-1))].tolist()
