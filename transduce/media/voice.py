"""How likely it is, frame by frame, that somebody speaks: Silero's network, run by onnxruntime on one thread.

Owns the network's file, its frames and its state. Knows nothing of thresholds or spans. The file is the one in the
package silero-vad, whose Python is not imported.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution

import numpy as np
import numpy.typing as npt

from transduce.errors import ConfigError
from transduce.media.audio import Samples

RATE = 16_000
FRAME = 512
"""Samples that one probability is about."""

_CONTEXT = 64  # samples of the frame before, which the network sees again
_STATE = (1, 1, 128)
_BLOCK = 64  # frames of one call at most; more are no faster and take more memory
_FILE = "silero_vad/data/silero_vad_16k_sequence.onnx"


@dataclass(frozen=True, slots=True)
class Voiced:
    """Probabilities of speech [frames] of consecutive frames. `end`: where the last one ends, in samples."""

    probabilities: npt.NDArray[np.float32]
    end: int


class Voice:
    """The network. One serves any number of recordings, in any threads. Raises ConfigError where it is missing."""

    def __init__(self) -> None:
        try:
            import onnxruntime  # type: ignore[import-untyped]

            path = distribution("silero-vad").locate_file(_FILE)
        except (ImportError, PackageNotFoundError) as error:
            raise ConfigError(
                f'voice activity: {error.name} is not installed; pip install "transduce[speech]"'
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors: it warns of weights in the file that nothing uses
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def probabilities(self, pieces: Iterable[Samples]) -> Iterator[Voiced]:
        """Listen to one recording, mono at RATE, which comes in pieces [samples] of any sizes.

        Each piece is answered as far as it completes frames; a last frame that is incomplete is heard as if silence
        followed.
        """
        hidden = cell = np.zeros(_STATE, np.float32)
        end = 0
        for frames, samples in _blocks(pieces):
            found, hidden, cell = self._session.run(None, {"input": frames, "h": hidden, "c": cell})
            end += samples
            yield Voiced(found, end)


def _blocks(pieces: Iterable[Samples]) -> Iterator[tuple[Samples, int]]:
    """Frames behind the end of the frame before [frames, context + frame], and how many new samples are in them."""
    held = np.zeros(_CONTEXT, np.float32)
    for piece in pieces:
        held = np.concatenate((held, piece))
        while count := min((len(held) - _CONTEXT) // FRAME, _BLOCK):
            yield _framed(held, count), count * FRAME
            held = held[count * FRAME :]
    if rest := len(held) - _CONTEXT:
        yield _framed(np.pad(held, (0, FRAME - rest)), 1), rest


def _framed(samples: Samples, count: int) -> Samples:
    overlapping = np.lib.stride_tricks.sliding_window_view(samples, _CONTEXT + FRAME)
    return np.ascontiguousarray(overlapping[: count * FRAME : FRAME])
