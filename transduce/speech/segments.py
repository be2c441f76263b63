"""Transcribed segments and words, in the field names of openai/whisper.

Owns the records and the measure of repetitive text. Knows neither how a segment was decoded nor how it is written out.
"""

import zlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """One word and when it is spoken.

    `word` keeps its leading space, and the punctuation merged into it: the words of a segment joined are its text.
    `start` and `end` are seconds from the beginning of the audio. `probability` is the mean of its tokens', 0 to 1.
    """

    word: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech between two timestamps of one decoded window.

    `id` counts a transcript's segments from 0. `seek` is where its window begins, in frames of 0.01 s.
    `start` and `end` are seconds from the beginning of the audio. `text` keeps its leading space.
    `tokens` are the token ids of the segment, its timestamp tokens included.

    The other four belong to the window, and are equal in all segments of one: the sampling `temperature` of the attempt
    that was kept, `avg_logprob` (natural logarithm, mean over its tokens and the end token), `compression_ratio` of its
    text, and `no_speech_prob`, 0 to 1. `words` is None where word times were not asked for. `channel`, from 1
    on, is None where channels are not heard by themselves.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: tuple[Word, ...] | None = None
    channel: int | None = None


def compression_ratio(text: str) -> float:
    """Bytes of `text` in UTF-8 over those that zlib makes of it: high where it repeats itself, 0.0 for no text."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))
