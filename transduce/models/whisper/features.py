"""Log-mel features of any part of a long recording, in memory for that part alone.

Owns what a part's features owe to the rest: the samples around its edges, and the loudest sound of the whole, from
which quiet ones are cut off. So parts are what transformers' extractor makes of the whole recording, cut.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import WhisperFeatureExtractor

from transduce.media.audio import Excerpt, Samples

QUIETEST = 1e-10
"""Power that silence is taken for."""

RANGE = 8.0
"""Powers of ten between the loudest sound and what is cut off."""


class LogMel:
    """The features of an extractor, which says their sizes."""

    def __init__(self, extractor: WhisperFeatureExtractor) -> None:
        self._filters = torch.from_numpy(extractor.mel_filters).float().T
        self._size, self._hop, self._frames = extractor.n_fft, extractor.hop_length, extractor.nb_max_frames

    def level(self, recording: Samples) -> float:
        """The greatest log power of the recording, which is looked at window by window."""
        frames = len(recording) // self._hop
        windows = (self._powers(recording, at, min(at + self._frames, frames)) for at in range(0, frames, self._frames))
        return max(float(powers.max()) for powers in windows)

    def features(self, excerpt: Excerpt) -> npt.NDArray[np.float32]:
        """[mels, frames of a window], zero behind the excerpt's end. It starts and ends at whole frames."""
        first, last = excerpt.start // self._hop, excerpt.stop // self._hop
        assert excerpt.level is not None
        powers = self._powers(excerpt.recording, first, last).clamp(min=excerpt.level - RANGE)
        features = torch.zeros(len(self._filters), self._frames)
        features[:, : last - first] = (powers + 4) / 4
        return features.numpy()

    def _powers(self, recording: Samples, first: int, last: int) -> Tensor:
        """Log powers [mels, last - first]. A frame is centred where it starts; at its ends a recording is mirrored."""
        start, stop = first * self._hop - self._size // 2, (last - 1) * self._hop + self._size // 2
        outside = max(0, -start), max(0, stop - len(recording))
        samples = torch.from_numpy(np.pad(recording[max(0, start) : stop], outside, mode="reflect"))
        window = torch.hann_window(self._size)
        waves = torch.stft(samples, self._size, self._hop, window=window, center=False, return_complex=True)
        return (self._filters @ waves.abs().square()).clamp(min=QUIETEST).log10()
