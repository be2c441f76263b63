"""From what a decoder looks at while it reads a text to when each of its tokens is spoken.

Owns the arithmetic: weights are told apart from what all tokens look at, smoothed over time, and warped onto the text.
Knows no tokens, no seconds and no model.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.core.output import Weights

Floats = npt.NDArray[np.floating[Any]]

WIDTH = 7
"""Rows that the median is taken of."""

BLOCK = 32
"""Tokens that are smoothed at once: what that takes stays in the cache."""


def onsets(weights: Weights, start: int, stop: int) -> npt.NDArray[np.int64]:
    """The row at which each of tokens [start, stop) begins, by weights [heads, tokens, rows] of these and all others.

    Rows never decrease, and the first is 0.
    """
    return warped(smoothed(normalized(weights)).mean(axis=0)[start:stop])


def normalized(weights: Weights) -> Weights:
    """Weights [heads, tokens, rows] as deviations from the tokens' mean, in standard deviations; 0 where all agree."""
    deviations = weights - weights.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.square(deviations).mean(axis=1, keepdims=True))
    normal: Weights = np.divide(deviations, spread, out=np.zeros_like(deviations), where=spread > 0)
    return normal


def smoothed(x: Weights, width: int = WIDTH) -> Weights:
    """The median of each row of x [heads, tokens, rows] and its neighbours, `width` in all (odd), mirrored at the ends.

    Fewer rows than that takes to mirror stay as they are.
    """
    half = width // 2
    if x.shape[2] <= half:
        return x
    out = np.empty_like(x)
    for head, into in zip(x, out, strict=True):
        for at in range(0, len(head), BLOCK):
            padded = np.pad(head[at : at + BLOCK], ((0, 0), (half, half)), mode="reflect")
            into[at : at + BLOCK] = _median([padded[:, by : by + x.shape[2]] for by in range(width)])
    return out


def _median(planes: list[Weights]) -> Weights:
    """The median of an odd number of arrays, element by element.

    Of so many that the least and the greatest of them cannot be it, both go; then the next one comes in.
    """
    few = len(planes) // 2 + 2
    kept, later = planes[:few], planes[few:]
    while len(kept) > 1:
        for at in range(1, len(kept)):
            kept[at - 1], kept[at] = np.minimum(kept[at - 1], kept[at]), np.maximum(kept[at - 1], kept[at])
        for at in range(len(kept) - 2, 0, -1):
            kept[at - 1], kept[at] = np.minimum(kept[at - 1], kept[at]), np.maximum(kept[at - 1], kept[at])
        kept = [*kept[1:-1], *later[:1]]
        later = later[1:]
    return kept[0]


def warped(gains: Floats) -> npt.NDArray[np.int64]:
    """The first column of each row on the path of the greatest sum through gains [rows, columns].

    It leads from the first corner to the last one; each step goes one row on, one column on, or both. Of equal paths it
    is one whose rows begin early.
    """
    sums = _sums(np.asarray(gains, dtype=np.float64))
    row, column = len(gains), gains.shape[1]
    first = np.zeros(row, dtype=np.int64)
    while row:
        first[row - 1] = column - 1
        both, down, on = sums[row - 1, column - 1], sums[row - 1, column], sums[row, column - 1]
        if on >= both and on >= down:
            column -= 1
        else:
            row, column = row - 1, column - (both >= down)
    return first


def _sums(gains: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The greatest sum of a path to each place, [rows + 1, columns + 1]; that before the first corner is 0.

    Along a row the best way in comes from the row before at some column, and goes on from there: with what a row's
    gains add up to taken off, a running maximum.
    """
    sums = np.full((gains.shape[0] + 1, gains.shape[1] + 1), -np.inf)
    sums[0, 0] = 0
    along = np.cumsum(gains, axis=1)
    for row, total in enumerate(along):
        entered = np.maximum(sums[row, :-1], sums[row, 1:])
        entered[1:] -= total[:-1]
        np.add(np.maximum.accumulate(entered), total, out=sums[row + 1, 1:])
    return sums
