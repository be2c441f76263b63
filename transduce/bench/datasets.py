"""Data sets: what is asked of a model, as items that a server or an `LLM` can be given.

Owns how inputs are drawn and read. Knows neither HTTP nor `LLM`.
"""

import io
import json
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from transduce.bench.lengths import Lengths
from transduce.errors import ConfigError
from transduce.media.audio import Samples, decode

SPECIAL_IDS = 4
"""Token ids below are special in most vocabularies."""

RATE = 16_000
"""Hertz that clips are sent at."""

AUDIO = (".aac", ".aiff", ".flac", ".m4a", ".mp3", ".mp4", ".mpga", ".oga", ".ogg", ".opus", ".wav", ".webm")


@dataclass(frozen=True, slots=True)
class Text:
    """prompt: text or token ids. fields: what else the request holds, named as in SamplingParams."""

    prompt: str | Sequence[int]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Clip:
    """A file's name and content, and how long it plays."""

    name: str
    content: bytes
    seconds: float


Item = Text | Clip

Found = TypeVar("Found")

NAMES = ("random", "jsonl", "audio")
MOST = 100
"""Random texts where no number is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """What to draw items from, by the flags of the same names.

    dataset_name: one of NAMES. dataset_path: a JSONL file, or a folder of audio files. num_prompts: None: MOST random
    texts, or each line or file once. input_len, output_len: `Lengths`, and vocab_size, for random texts. noise: for
    audio. Raises ConfigError for a value that cannot work.
    """

    dataset_name: str = "random"
    dataset_path: Path | None = None
    num_prompts: int | None = None
    input_len: str = "128"
    output_len: str = "64"
    vocab_size: int = 1000
    noise: float = 0.001

    def __post_init__(self) -> None:
        if self.dataset_name not in NAMES:
            raise ConfigError(f"dataset_name={self.dataset_name!r}: give one of {', '.join(NAMES)}")
        if (self.dataset_path is None) != (self.dataset_name == "random"):
            raise ConfigError(f"dataset_name={self.dataset_name!r}, dataset_path={self.dataset_path}: {_PLACES}")
        if self.num_prompts is not None and self.num_prompts < 1:
            raise ConfigError(f"num_prompts={self.num_prompts}: give at least 1")

    def draw(self, rng: np.random.Generator) -> Sequence[Item]:
        """Items: other random texts and other noise at each call. Raises ConfigError or MediaError."""
        if self.dataset_path is None:
            lengths = Lengths.parse(self.input_len), Lengths.parse(self.output_len)
            return random_texts(self.num_prompts or MOST, *lengths, self.vocab_size, rng)
        if self.dataset_name == "jsonl":
            return read_texts(self.dataset_path, self.num_prompts)
        return read_clips(self.dataset_path, self.num_prompts, self.noise, rng)


_PLACES = "jsonl needs the path of a file, audio that of a folder, and random takes none"


def random_texts(count: int, source: Lengths, output: Lengths, vocab_size: int, rng: np.random.Generator) -> list[Text]:
    """Random token ids below `vocab_size`, to be answered greedily with exactly so many tokens."""
    if vocab_size <= SPECIAL_IDS:
        raise ConfigError(f"vocab_size={vocab_size}: ids are drawn from {SPECIAL_IDS} on; give more")
    lengths = zip(source.draw(count, rng), output.draw(count, rng), strict=True)
    return [Text(rng.integers(SPECIAL_IDS, vocab_size, most).tolist(), _exactly(wanted)) for most, wanted in lengths]


def read_texts(path: Path, count: int | None) -> list[Text]:
    """The lines of a JSONL file, over and over until there are `count`; None: each once.

    A line is a string, or an object with `prompt` (text or token ids) and what else the request is to hold. Raises
    ConfigError for anything else, and where there is no line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}; give a UTF-8 file of JSON lines") from error
    found = [_text(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    return list(_so_many(found, count, f"{str(path)!r} has no line"))


def read_clips(folder: Path, count: int | None, noise: float, rng: np.random.Generator) -> list[Clip]:
    """The folder's audio files, over and over until there are `count`; None: each once.

    With `noise`, its standard deviation, full scale being 1, every clip is 16 kHz WAV with noise of its own, so that
    no two are the same to a cache; without, it is the file as it is. Raises ConfigError where there is no file, and
    MediaError for one that is damaged.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in AUDIO)
    decoded = {path: decode(path, RATE) for path in files}
    return [
        _clip(path, decoded[path], noise, rng) for path in _so_many(files, count, f"{str(folder)!r} has no audio file")
    ]


def _exactly(tokens: int) -> dict[str, Any]:
    """Random ids, and more so random weights, may be answered with nothing but special tokens: they are text too."""
    return {"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True, "skip_special_tokens": False}


def _text(line: str, place: str) -> Text:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place} is no JSON: {error}") from error
    match value:
        case str(prompt) | {"prompt": str() | [int(), *_] as prompt}:
            fields = value if isinstance(value, dict) else {}
            return Text(prompt, {name: each for name, each in fields.items() if name != "prompt"})
        case _:
            raise ConfigError(f'{place}: give a string, or an object with "prompt", which is text or token ids')


def _so_many(found: Sequence[Found], count: int | None, complaint: str) -> Iterator[Found]:
    if not found:
        raise ConfigError(complaint)
    return islice(cycle(found), len(found) if count is None else count)


def _clip(path: Path, samples: Samples, noise: float, rng: np.random.Generator) -> Clip:
    seconds = len(samples) / RATE
    if not noise:
        return Clip(path.name, path.read_bytes(), seconds)
    noisy = samples + noise * rng.standard_normal(len(samples), np.float32)
    return Clip(f"{path.stem}.wav", _wav(noisy), seconds)


def _wav(samples: Samples) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes((np.clip(samples, -1, 1) * (2**15 - 1)).astype("<i2").tobytes())
    return file.getvalue()
