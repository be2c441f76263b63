"""Audio files or plain samples to mono float32 at the rate a model wants, and parts of what was decoded.

Owns decoding, mixing down and resampling, all by PyAV. Knows no model and no features, and opens nothing but
the file or bytes it was given: a playlist cannot make it read another file or a URL.
"""

import io
import logging
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
from av.error import FFmpegError, InvalidDataError

from transduce.errors import MediaError
from transduce.media.samples import array, mixed, planes, scaled

logger = logging.getLogger(__name__)

Samples = npt.NDArray[np.float32]
Audio = str | os.PathLike[str] | bytes | tuple[npt.ArrayLike, int]

# No recording lies outside; a forged header inside cannot make the resampler allocate gigabytes.
RATES = range(1_000, 768_001)

MOST_CHANNELS = 16
"""Of a recording whose channels are decoded one by one; a small file may claim hundreds."""


RESAMPLED = 64
"""Channels of a file."""


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """Samples [start, stop) of a decoded recording, which stands behind them: features look beyond their edges.

    level: what the model's processor says of the whole recording (`Processor.level`).
    """

    recording: Samples
    start: int
    stop: int
    level: float


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """All samples of a decoded recording: as much a clip as any that is not decoded yet."""

    recording: Samples


Decoded = Whole | Excerpt
"""What a processor need not decode."""


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

    Raises MediaError where no audio can be had: a missing or empty file, no audio stream, nothing that can be decoded,
    no samples, non-finite samples or floats beyond LOUDEST, a type or rate that is none, more samples than `most`.
    A file cut short gives what it holds, and of one damaged within the packets that are whole, with a warning.
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
            yield mixed(_parted(frame), index)
        if not heard:
            raise MediaError(f"{name} has no samples, or too few (under 2 ms) to resample; give longer audio")


def channels(audio: Audio) -> int:
    """How many channels a recording has. Raises MediaError as `decode` does, and for more than MOST_CHANNELS."""
    with _refusing(name := _name(audio)):
        first = next(_frames(audio), None)
        if first is None:
            raise MediaError(f"{name} has no samples; give longer audio")
        count = len(planes(array(audio[0]))) if isinstance(audio, tuple) else first.layout.nb_channels
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
            return (planes(array(samples))[index], rate), None
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
            yield from _framed(array(samples), _checked_rate(rate))
        case _:
            kind = type(audio).__name__
            raise MediaError(f"audio of type {kind}: give a path, the bytes of a file, or (samples, rate)")


def _decoded(file: BinaryIO, name: str) -> Iterator[AudioFrame]:
    """A file's frames. What is damaged is left out and told in the log, or raised where nothing else is there."""
    fault: InvalidDataError | None = None
    damaged, found = 0, False
    with _opened(file, name) as (container, stream):
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except InvalidDataError as error:
                fault, damaged = error, damaged + 1
                continue
            found = found or bool(frames)
            yield from frames
    if fault is not None and not found:
        raise fault
    if damaged:
        logger.warning("%s is damaged: %d of its packets are left out", name, damaged)


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
        if (count := stream.codec_context.layout.nb_channels) > RESAMPLED:
            raise MediaError(f"{name} has {count} channels, and FFmpeg resamples at most {RESAMPLED}; mix some")
        yield container, stream


def _framed(samples: npt.NDArray[Any], rate: int) -> Iterator[AudioFrame]:
    """Samples in any shape as mono frames of a second, so little is copied."""
    channels = planes(samples)
    for start in range(0, channels.shape[1], rate):
        mono = mixed(scaled(channels[:, start : start + rate]))
        frame = AudioFrame.from_ndarray(mono[None], format="fltp", layout="mono")
        frame.sample_rate = rate
        yield frame


def _resampled(frames: Iterable[AudioFrame], rate: int) -> Iterator[AudioFrame]:
    """The same channels at `rate`, in float32, a second in a frame: each frame costs some of Python.

    They are interleaved: of planes PyAV finds no end from 8 on, and reads what is no memory of ours.
    """
    resampler = AudioResampler(format="flt", rate=rate, frame_size=rate)
    for frame in frames:
        yield from resampler.resample(frame)
    yield from resampler.resample(None)  # the filter's tail


def _parted(frame: AudioFrame) -> Samples:
    """An interleaved frame's channels, [channels, samples]."""
    return np.ascontiguousarray(frame.to_ndarray().reshape(-1, frame.layout.nb_channels).T)


def _checked_rate(rate: object) -> int:
    try:
        value = operator.index(rate)  # type: ignore[arg-type]  # whatever the user gave
    except TypeError:
        raise MediaError(f"sampling rate {rate!r} is no integer; give hertz, such as 16000") from None
    if value not in RATES:
        raise MediaError(f"sampling rate {value} Hz: give {RATES[0]} to {RATES[-1]}")
    return value
