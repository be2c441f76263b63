"""Audio files or plain samples to mono float32 at the rate a model wants, and parts of what was decoded.

Owns decoding, mixing down and resampling, all by PyAV. Knows no model and no features, and opens nothing but
the file or bytes it was given: a playlist cannot make it read another file or a URL.
"""

import io
import operator
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
import numpy.typing as npt
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.error import FFmpegError

from transduce.errors import MediaError

Samples = npt.NDArray[np.float32]
Audio = str | os.PathLike[str] | bytes | tuple[npt.ArrayLike, int]

# No recording lies outside; a forged header inside cannot make the resampler allocate gigabytes.
RATES = range(1_000, 768_001)

MOST_CHANNELS = 16
"""Of a recording whose channels are decoded one by one; a small file may claim hundreds."""

LOUDEST = 8.0
"""Float samples beyond are integers that were converted and not scaled; clipping leaves others little above 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """Samples [start, stop) of a decoded recording, which stands behind them: features look beyond their edges.

    level: what the model's processor says of the whole recording (`Processor.level`); None: this is the whole, and as
    much a clip as any that is not decoded yet.
    """

    recording: Samples
    start: int
    stop: int
    level: float | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel of a recording, from 0 on, to be decoded alone."""

    audio: Audio
    index: int


def decode(audio: Audio | Channel, rate: int, most: int | None = None) -> Samples:
    """Decode to mono samples [samples] at `rate` Hz, full scale being -1 to 1.

    audio: a path, the bytes of a file in any format FFmpeg reads (its first audio stream counts), or
    (samples, rate) with samples [samples], [channels, samples] or [samples, channels]. Of two axes the
    shorter is the channels, the first where they are equal. Channels are averaged, or there is the one
    of a Channel. Integers are divided by their type's range, unsigned ones centred first; floats are taken as they are,
    up to LOUDEST.
    most: samples at which decoding stops, as a small file may hold days, whatever it says of its length.

    Raises MediaError where no audio can be had: a missing, empty or damaged file, no audio stream, no
    samples, non-finite samples or floats beyond LOUDEST, a type or rate that is none, more samples than `most`.
    A file cut short gives what it holds if its format allows it.
    """
    held = bytearray()  # grows in place: hours of samples are there once
    for piece in stream(audio, rate, most):
        held += piece.data
    return np.frombuffer(held, np.float32)


def stream(audio: Audio | Channel, rate: int, most: int | None = None) -> Iterator[Samples]:
    """As `decode`, but in pieces as they are decoded, of a second but for the last. Raises what it does, on the way."""
    name, heard = _name(audio), 0
    with _refusing(name):
        target = _checked_rate(rate)
        source, index = _alone(audio)
        for frame in _resampled(_frames(source), target):
            heard += frame.samples
            if most is not None and heard > most:
                raise MediaError(f"{name} is longer than {most / target:g} s; give a shorter part of it")
            yield _mixed(frame.to_ndarray(), index)
        if not heard:
            raise MediaError(f"{name} has no samples, or too few (under 2 ms) to resample; give longer audio")


def channels(audio: Audio) -> int:
    """How many channels a recording has. Raises MediaError as `decode` does, and for more than MOST_CHANNELS."""
    with _refusing(name := _name(audio)):
        first = next(_frames(audio), None)
        if first is None:
            raise MediaError(f"{name} has no samples; give longer audio")
        count = len(_planes(_array(audio[0]))) if isinstance(audio, tuple) else first.layout.nb_channels
    if count > MOST_CHANNELS:
        raise MediaError(f"{name} has {count} channels, and at most {MOST_CHANNELS} are heard by themselves; mix some")
    return count


def seconds(file: bytes) -> float:
    """How long a file's audio is, found without decoding it. Raises MediaError as `decode` does for a file."""
    with _refusing(name := _name(file)), _opened(io.BytesIO(file), name) as (container, stream):
        ticks = sum(packet.duration or 0 for packet in container.demux(stream))
        return float(ticks * (stream.time_base or 0))


def _alone(audio: Audio | Channel) -> tuple[Audio, int | None]:
    """What to decode, and which of the channels of that; None: their mean."""
    match audio:
        case Channel((samples, rate), index):
            return (_planes(_array(samples))[index], rate), None
        case Channel(file, index):
            return file, index
        case _:
            return audio, None


def _name(audio: object) -> str:
    match audio:
        case Channel(recording, index):
            return f"channel {index + 1} of {_name(recording)}"
        case str() | os.PathLike():
            return f"audio file {os.fspath(audio)!r}"
        case bytes():
            return f"audio of {len(audio)} bytes"
        case _:
            return "audio samples"


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Turn what FFmpeg, the file system and numpy raise into a MediaError about `name`."""
    try:
        yield
    except MediaError:
        raise
    except (FFmpegError, OSError) as error:
        raise MediaError(f"cannot read {name}: {error.strerror}; {_way_out(name, error)}") from error
    except ValueError as error:
        raise MediaError(f"cannot read {name}: {error}") from error


def _way_out(name: str, error: FFmpegError | OSError) -> str:
    match error:
        case FileNotFoundError() if "://" in name:
            return "download it first"
        case FileNotFoundError():
            return "check the path"
        case IsADirectoryError():
            return "give a file"
        case PermissionError():
            return "make it readable"
        case _:
            return "give a complete audio file"


def _frames(audio: Any) -> Iterator[AudioFrame]:
    match audio:
        case str() | os.PathLike():
            with Path(audio).open("rb") as file:
                yield from _decoded(file, _name(audio))
        case bytes():
            yield from _decoded(io.BytesIO(audio), _name(audio))
        case (rate, samples) if isinstance(audio, tuple) and np.ndim(samples) and not np.ndim(rate):
            raise MediaError(f"audio is (rate, samples) with rate {rate!r}: give (samples, rate)")
        case (samples, rate) if isinstance(audio, tuple):
            yield from _framed(_array(samples), _checked_rate(rate))
        case _:
            kind = type(audio).__name__
            raise MediaError(f"audio of type {kind}: give a path, the bytes of a file, or (samples, rate)")


def _decoded(file: BinaryIO, name: str) -> Iterator[AudioFrame]:
    with _opened(file, name) as (container, stream):
        yield from container.decode(stream)


@contextmanager
def _opened(file: BinaryIO, name: str) -> Iterator[tuple[InputContainer, AudioStream]]:
    """A file's first audio stream, and what it comes in."""
    if not file.read(1):
        raise MediaError(f"{name} is empty; give a file that holds audio")
    file.seek(0)
    with av.open(file, "r", options={"protocol_whitelist": "none"}, metadata_errors="ignore") as container:
        if not container.streams.audio:
            raise MediaError(f"{name} has no audio stream; give a file that has one")
        stream = container.streams.audio[0]
        _checked_rate(stream.rate)
        yield container, stream


def _array(samples: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        return np.asarray(samples)
    except (TypeError, RuntimeError) as error:  # a tensor of another device or dtype, or with a gradient
        raise MediaError(f"audio samples of type {type(samples).__name__}: {error}; give a numpy array") from error


def _framed(samples: npt.NDArray[Any], rate: int) -> Iterator[AudioFrame]:
    """Samples in any shape as mono frames of a second, so little is copied."""
    channels = _planes(samples)
    for start in range(0, channels.shape[1], rate):
        mono = _mixed(_scaled(channels[:, start : start + rate]))
        frame = AudioFrame.from_ndarray(mono[None], format="fltp", layout="mono")
        frame.sample_rate = rate
        yield frame


def _planes(samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Samples [samples], [channels, samples] or [samples, channels] as [channels, samples]."""
    if samples.ndim not in (1, 2):
        raise MediaError(f"audio samples of shape {samples.shape}: give [samples] or [channels, samples]")
    if not samples.size:
        raise MediaError("audio samples are empty; give at least 2 ms")
    channels = samples if samples.ndim == 2 else samples[None]
    return channels.T if channels.shape[0] > channels.shape[1] else channels


def _scaled(samples: npt.NDArray[Any]) -> Samples:
    """Samples of any number type as float32 with full scale -1 to 1, shape kept."""
    kind, size = samples.dtype.kind, samples.dtype.itemsize
    if kind == "f":
        with np.errstate(over="ignore"):  # becomes inf, which is refused by name
            floats: Samples = samples.astype(np.float32)
        if LOUDEST < (peak := np.abs(floats).max()) < np.inf:
            raise MediaError(f"samples reach {peak:.1f}; floats go from -1 to 1: divide by {2**15}, or pass int16")
        return floats
    if kind not in "iu" or size > 4:  # a list of ints is int64: what its full scale is, only the caller knows
        raise MediaError(f"audio samples of type {samples.dtype}: give floats from -1 to 1, or int16")
    half = np.float32(2 ** (8 * size - 1))
    scaled: Samples = samples.astype(np.float32) / half
    return scaled - np.float32(1) if kind == "u" else scaled


def _mixed(channels: Samples, index: int | None = None) -> Samples:
    """Float channels [channels, samples] averaged, or one of them, [samples]."""
    if not np.isfinite(channels).all():
        raise MediaError("audio samples hold NaN or infinity; give finite ones")
    mixed: Samples = channels.mean(axis=0, dtype=np.float32) if index is None else channels[index]
    return mixed


def _resampled(frames: Iterable[AudioFrame], rate: int) -> Iterator[AudioFrame]:
    """The same channels at `rate`, as planes of float32, a second in a frame: each frame costs some of Python."""
    resampler = AudioResampler(format="fltp", rate=rate, frame_size=rate)
    for frame in frames:
        yield from resampler.resample(frame)
    yield from resampler.resample(None)  # the filter's tail


def _checked_rate(rate: object) -> int:
    try:
        value = operator.index(rate)  # type: ignore[arg-type]  # whatever the user gave
    except TypeError:
        raise MediaError(f"sampling rate {rate!r} is no integer; give hertz, such as 16000") from None
    if value not in RATES:
        raise MediaError(f"sampling rate {value} Hz: give {RATES[0]} to {RATES[-1]}")
    return value
