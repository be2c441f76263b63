"""Memory for packed weights: carved from large zeroed pieces, which the system backs with huge pages.

A step reads every weight once, and with small pages most of those reads would first have to look up where the page
is. Owns the pieces; a piece lives as long as a tensor carved from it.
"""

from functools import cache
from threading import Lock

import numpy as np
import torch
from torch import Tensor

PIECE = 64 << 20
"""Bytes asked for at once; numpy advises huge pages for them. What is not used is never touched."""

LINE = 64


class Arena:
    """Carves tensors from pieces; for any number of threads."""

    def __init__(self) -> None:
        self._piece = torch.empty(0, dtype=torch.uint8)
        self._lock = Lock()

    def zeros(self, size: int) -> Tensor:
        """uint8 [size], zeroed, at a multiple of 64 bytes; large ones have a piece of their own."""
        if size > PIECE // 2:
            return zeros(size)
        with self._lock:
            if size > len(self._piece):
                self._piece = zeros(PIECE)
            taken = self._piece[:size]
            self._piece = self._piece[-(-size // LINE) * LINE :]
            return taken


@cache
def arena() -> Arena:
    """The process's arena."""
    return Arena()


def zeros(size: int) -> Tensor:
    """uint8 [size], zeroed when it is first touched, at a multiple of 64 bytes."""
    piece = torch.from_numpy(np.zeros(size + LINE, np.uint8))
    return piece[-piece.data_ptr() % LINE :][:size]
