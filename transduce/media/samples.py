"""Plain samples of any type and shape as float32 channels, and their mean.

Owns which axis is channels, what full scale is, and which values are none. Knows no files and no rates.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.errors import MediaError

LOUDEST = 8.0
"""Float samples beyond are integers that were converted and not scaled; clipping leaves others little above 1."""


def array(samples: npt.ArrayLike) -> npt.NDArray[Any]:
    """As numpy has them. Raises MediaError for a tensor that it cannot hold."""
    try:
        return np.asarray(samples)
    except (TypeError, RuntimeError) as error:  # a tensor of another device or dtype, or with a gradient
        raise MediaError(f"audio samples of type {type(samples).__name__}: {error}; give a numpy array") from error


def planes(samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Samples [samples], [channels, samples] or [samples, channels] as [channels, samples].

    Raises MediaError for other shapes, and where there are no samples.
    """
    if samples.ndim not in (1, 2):
        raise MediaError(f"audio samples of shape {samples.shape}: give [samples] or [channels, samples]")
    if not samples.size:
        raise MediaError("audio samples are empty; give at least 2 ms")
    channels = samples if samples.ndim == 2 else samples[None]
    return channels.T if channels.shape[0] > channels.shape[1] else channels


def scaled(samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Samples of any number type as float32 with full scale -1 to 1, shape kept. Raises MediaError for another type."""
    kind, size = samples.dtype.kind, samples.dtype.itemsize
    if kind == "f":
        with np.errstate(over="ignore"):  # becomes inf, which is refused by name
            floats: npt.NDArray[np.float32] = samples.astype(np.float32)
        return floats
    if kind not in "iu" or size > 4:  # a list of ints is int64: what its full scale is, only the caller knows
        raise MediaError(f"audio samples of type {samples.dtype}: give floats from -1 to 1, or int16")
    half = np.float32(2 ** (8 * size - 1))
    values: npt.NDArray[np.float32] = samples.astype(np.float32) / half
    return values - np.float32(1) if kind == "u" else values


def mixed(channels: npt.NDArray[np.float32], index: int | None = None) -> npt.NDArray[np.float32]:
    """Float channels [channels, samples] averaged, or one of them, [samples].

    Raises MediaError for NaN, infinity and floats beyond LOUDEST.
    """
    peak = np.abs(channels).max(initial=0)
    if not np.isfinite(peak):
        raise MediaError("audio samples hold NaN or infinity; give finite ones")
    if peak > LOUDEST:
        raise MediaError(f"samples reach {peak:g}; floats go from -1 to 1: divide by {2**15}, or pass int16")
    mono: npt.NDArray[np.float32] = channels.mean(axis=0, dtype=np.float32) if index is None else channels[index]
    return mono
