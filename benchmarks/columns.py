"""The table's columns: which requests each has, and how they are written on the command line.

`B=8`: 8 requests of 128 source tokens. `S=1000`: 8 requests of 1,000. `beam=4`: as `B=8`, by a beam search of width
4, of which the best answer counts. They generate 64 tokens each. `mixed`: 256 requests, source lengths lognormal
(median 96, sigma 0.8, 8 to 900), output lengths lognormal (median 48, sigma 0.7, 4 to 256). Output lengths are forced,
and only tokens that were wanted count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.models import SPECIAL_IDS

SOURCE, BATCH, TOKENS, STREAM = 128, 8, 64, 256


@dataclass(frozen=True, slots=True)
class Work:
    """One request: source token ids, and how many tokens to generate. beams: 1 is greedy."""

    source: list[int]
    length: int
    beams: int = 1


@dataclass(frozen=True, slots=True)
class Column:
    """So many requests, all of `source` and `tokens` tokens; None: lengths are drawn."""

    name: str
    requests: int
    source: int | None = None
    tokens: int | None = None
    beams: int = 1

    def draw(self, vocab: int, rng: np.random.Generator) -> list[Work]:
        """New requests."""
        sources = _lengths(self.source, self.requests, (96, 0.8, 8, 900), rng)
        tokens = _lengths(self.tokens, self.requests, (48, 0.7, 4, 256), rng)
        lengths = zip(sources, tokens, strict=True)
        return [Work(rng.integers(SPECIAL_IDS, vocab, s).tolist(), n, self.beams) for s, n in lengths]


def batch(size: int, source: int = SOURCE, tokens: int = TOKENS) -> Column:
    """A column of `size` requests that are all alike."""
    return Column(f"B={size}" if source == SOURCE else f"S={source}", size, source, tokens)


KINDS: Mapping[str, Callable[[int], Column]] = {
    "B": batch,
    "S": lambda source: batch(BATCH, source),
    "beam": lambda width: Column(f"beam={width}", BATCH, SOURCE, TOKENS, width),
    "mixed": lambda requests: Column("mixed" if requests == STREAM else f"mixed={requests}", requests),
}


def parse(text: str) -> list[Column]:
    """`B=1,8,S=1000,mixed` as columns; a bare number belongs to the letter before. Raises ValueError for others."""
    columns, kind = [], ""
    for word in text.split(","):
        head, _, number = (f"mixed={STREAM}" if word == "mixed" else word).rpartition("=")
        kind = head or kind
        if kind not in KINDS or not number.isdecimal() or int(number) == 0:
            raise ValueError(f"column {word!r}: give B=N, S=N, beam=N, mixed or mixed=N, separated by commas")
        columns.append(KINDS[kind](int(number)))
    return columns


def _lengths(
    fixed: int | None, count: int, lognormal: tuple[float, float, int, int], rng: np.random.Generator
) -> list[int]:
    if fixed is not None:
        return [fixed] * count
    median, sigma, low, high = lognormal
    drawn = np.clip(rng.lognormal(np.log(median), sigma, count), low, high)
    return [int(each) for each in drawn]


def wanted(work: Sequence[Work]) -> int:
    """Tokens asked for."""
    return sum(each.length for each in work)
