"""Addressing single entries of scores [rows, vocab]: indices are made on the host, an edit is one operator.

Knows no rule and no state.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ids = npt.NDArray[np.int64]
Entries = tuple[Tensor, Tensor]


def ragged(scores: Tensor, rows: Sequence[int], tokens: Sequence[Sequence[int] | Ids]) -> Entries:
    """Index of scores[rows[i], t] for every t of tokens[i]; ids without a column in `scores` are left out."""
    columns = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in tokens])
    lines = np.repeat(np.asarray(rows, dtype=np.int64), [len(ids) for ids in tokens])
    known = columns < scores.shape[1]
    return moved(lines[known], scores.device), moved(columns[known], scores.device)


def grid(rows: Sequence[int], tokens: Tensor) -> Entries:
    """Index of scores[row, t] for every row and every t of `tokens` [n]."""
    return whole(rows, tokens.device).unsqueeze(1), tokens


def whole(rows: Sequence[int], device: torch.device) -> Tensor:
    """Index [rows] of whole rows."""
    return torch.tensor(rows, dtype=torch.long, device=device)


def forbid(scores: Tensor, entries: Entries) -> None:
    """Set entries to -inf."""
    scores[entries] = -torch.inf


def keep(scores: Tensor, rows: Sequence[int], entries: Entries) -> None:
    """Set all of `rows` to -inf but entries."""
    kept = scores[entries]
    scores.index_fill_(0, whole(rows, scores.device), -torch.inf)
    scores[entries] = kept


def force(scores: Tensor, rows: Sequence[int], tokens: Tensor) -> None:
    """Leave rows nothing but `tokens` [n], at score 0."""
    scores.index_fill_(0, whole(rows, scores.device), -torch.inf)
    scores[grid(rows, tokens)] = 0.0


def moved(ids: Ids, device: torch.device) -> Tensor:
    """Numbers of the host's, on the device."""
    return torch.from_numpy(ids).to(device)
