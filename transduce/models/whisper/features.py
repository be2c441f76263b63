"""Log-mel features of any part of a long recording, in memory for that part alone.

Owns what a part's features owe to the rest: the samples around its edges, and the loudest sound of the whole, from
which quiet ones are cut off. So parts are what transformers' extractor makes of the whole recording, cut.
"""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import WhisperFeatureExtractor

from transduce.media.audio import Excerpt, Samples
from transduce.media.tape import Tape

QUIETEST = 1e-10
"""Power that silence is taken for."""

RANGE = 8.0
"""Powers of ten between the loudest sound and what is cut off."""

OFFSET = 4.0
"""A feature is a log power, more by this and then divided by it."""


class LogMel:
    """The features of an extractor, which says their sizes."""

    def __init__(self, extractor: WhisperFeatureExtractor) -> None:
        self._filters = torch.from_numpy(extractor.mel_filters).float().T
        self._size: int = extractor.n_fft
        self._hop: int = extractor.hop_length
        self._frames: int = extractor.nb_max_frames
        self._hann = torch.hann_window(self._size)

    def level(self, pieces: Iterable[Samples]) -> float:
        """The greatest log power of a recording, which is looked at window by window as its pieces come."""
        tape, done, levels = Tape(), 0, list[float]()
        for _ in tape.record(pieces):
            while self._ends(done + self._frames) <= tape.end:
                levels.append(self._loudest(tape, done, done + self._frames))
                done += self._frames
        return max([*levels, self._loudest(tape, done, tape.end // self._hop)])

    def _ends(self, frames: int) -> int:
        """Where the samples end that so many frames see."""
        return (frames - 1) * self._hop + self._size // 2

    def _loudest(self, tape: Tape, first: int, last: int) -> float:
        """Of frames [first, last), after which what was before them is forgotten."""
        at = max(0, first - self._size // self._hop)
        samples = tape.part(at * self._hop, self._ends(last))
        tape.forget((last - self._size // self._hop) * self._hop)
        return float(self._powers(samples, first - at, last - at).max()) if first < last else -math.inf

    def clip(self, samples: Samples) -> npt.NDArray[np.float32]:
        """[mels, frames of a window] of all of a recording, with silence behind it up to the window's end."""
        frames = min(self._frames, -(-(len(samples) + self._size // 2) // self._hop))
        stop = min(self._frames * self._hop, self._ends(frames))
        heard = np.pad(samples, (0, max(0, stop - len(samples))))
        powers = self._powers(heard, 0, frames)
        level = float(powers.max())
        return self._scaled(powers, level, behind=max(math.log10(QUIETEST), level - RANGE))

    def features(self, excerpt: Excerpt) -> npt.NDArray[np.float32]:
        """[mels, frames of a window], zero behind the excerpt's end. It starts and ends at whole frames."""
        powers = self._powers(excerpt.recording, excerpt.start // self._hop, excerpt.stop // self._hop)
        return self._scaled(powers, excerpt.level, behind=-OFFSET)

    def _scaled(self, powers: Tensor, level: float, behind: float) -> npt.NDArray[np.float32]:
        """Log powers [mels, frames] as features of a window; those behind them are of a log power."""
        features = torch.full((len(self._filters), self._frames), behind)
        features[:, : powers.shape[1]] = powers.clamp(min=level - RANGE)
        return features.add_(OFFSET).div_(OFFSET).numpy()

    def _powers(self, recording: Samples, first: int, last: int) -> Tensor:
        """Log powers [mels, last - first]. A frame is centred where it starts; at its ends a recording is mirrored."""
        start, stop = first * self._hop - self._size // 2, self._ends(last)
        outside = max(0, -start), max(0, stop - len(recording))
        samples = torch.from_numpy(np.pad(recording[max(0, start) : stop], outside, mode="reflect"))
        waves = torch.stft(samples, self._size, self._hop, window=self._hann, center=False, return_complex=True)
        return (self._filters @ (waves.real.square() + waves.imag.square())).clamp(min=QUIETEST).log10()
