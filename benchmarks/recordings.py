"""Recordings of any length whose words are known: clips in turn, with other noise each time, and silences between them.

Owns how they are made, and how many of their words were heard wrongly.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jiwer
import numpy as np
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

from benchmarks.clips import NOISE, RATE, Clip
from transduce.media.audio import decode

SILENCE = (0.3, 2.5)
"""Seconds between two clips, at the least and at the most."""

ROW = re.compile(r"^\| (\S+\.wav) \| (.+) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recording:
    """samples: at RATE. words: what is said in it."""

    samples: Clip
    words: str


def spoken(folder: Path) -> list[Recording]:
    """The clips that the table in a folder's README.md names, with the words it has for them."""
    rows = ROW.findall((folder / "README.md").read_text(encoding="utf-8"))
    return [Recording(decode(folder / name, RATE), words) for name, words in rows]


def joined(clips: Sequence[Recording], seconds: float, rng: np.random.Generator) -> Recording:
    """A recording that is hardly longer than it is asked to be."""
    parts, words, length = list[Clip](), list[str](), 0
    while length < seconds * RATE:
        clip = clips[len(words) % len(clips)]
        parts += [np.zeros(int(rng.uniform(*SILENCE) * RATE), np.float32), clip.samples]
        words.append(clip.words)
        length += len(parts[-2]) + len(parts[-1])
    return Recording(np.concatenate(parts) + rng.normal(0, NOISE, length).astype(np.float32), " ".join(words))


def word_errors(recordings: Sequence[Recording], heard: Sequence[str]) -> float:
    """The share of words that are wrong, missing or too many, after Whisper's normaliser."""
    normal = EnglishTextNormalizer({})
    truth = [normal(recording.words) for recording in recordings]
    return float(jiwer.process_words(truth, [*map(normal, heard)]).wer)
