"""Speech to transcribe: short clips of a folder, each time with other noise, so that no two inputs are the same."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transduce.media.audio import decode

RATE = 16_000
LONGEST = 30
NOISE = 1e-3
"""Standard deviation; full scale is 1."""

PAUSE = 0.05
"""Seconds between an answer and the next clip, where one after another is sent."""

Clip = npt.NDArray[np.float32]
Call = list[Clip]
"""Clips handed over together."""


def load(folder: Path) -> list[Clip]:
    """Every WAV file of at most 30 s, at 16 kHz. Raises FileNotFoundError where there is none."""
    clips = [decode(path, RATE) for path in sorted(folder.rglob("*.wav"))]
    short = [clip for clip in clips if len(clip) <= LONGEST * RATE]
    if not short:
        raise FileNotFoundError(f"{folder}: no WAV file of at most {LONGEST} s")
    return short


def draw(clips: Sequence[Clip], count: int, at_once: int, rng: np.random.Generator) -> list[Call]:
    """`count` clips in random order, all of them as often as any other or once more, in calls of `at_once`."""
    rounds = -(-count // len(clips))
    order = np.concatenate([rng.permutation(len(clips)) for _ in range(rounds)])[:count]
    noisy = [clips[index] + rng.normal(0, NOISE, len(clips[index])).astype(np.float32) for index in order]
    return [noisy[start : start + at_once] for start in range(0, count, at_once)]


def seconds(work: Sequence[Call]) -> float:
    """Of audio."""
    return sum(len(clip) for call in work for clip in call) / RATE
