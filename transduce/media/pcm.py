"""Raw audio that comes in pieces: 16-bit integers to float samples at the rate that is wanted.

Owns the resampler's state from piece to piece. Knows no files; `transduce.media.audio` does.
"""

import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler

from transduce.errors import MediaError
from transduce.media.audio import RATES, Samples

WIDTH = 2
"""Bytes of a sample."""


class Pcm16:
    """One speaker's PCM16, little endian and mono, at `rate` Hz; out come samples at `target` Hz, -1 to 1.

    Raises MediaError for a rate that is none.
    """

    def __init__(self, rate: int, target: int) -> None:
        if rate not in RATES:
            raise MediaError(f"sampling rate {rate} Hz: give {RATES[0]} to {RATES[-1]}")
        self._rate = rate
        self._resampler = AudioResampler(format="fltp", layout="mono", rate=target)

    def samples(self, data: bytes) -> Samples:
        """What the next bytes complete [samples]. Raises MediaError for half a sample."""
        if len(data) % WIDTH:
            raise MediaError(f"audio of {len(data)} bytes: a sample of pcm16 has two; send an even number")
        if not data:
            return np.zeros(0, np.float32)
        frame = AudioFrame.from_ndarray(np.frombuffer(data, "<i2")[None], format="s16", layout="mono")
        frame.sample_rate = self._rate
        made = [resampled.to_ndarray()[0] for resampled in self._resampler.resample(frame)]
        return np.concatenate(made) if made else np.zeros(0, np.float32)
