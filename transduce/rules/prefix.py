"""The rule that a function of the user's says which tokens may follow, as transformers' prefix_allowed_tokens_fn.

Owns what the function is told, and what is refused of its answers.
"""

import reprlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from transduce.errors import RequestError
from transduce.rules import arguments
from transduce.rules.base import LogitsRule
from transduce.rules.entries import Ids, keep, ragged
from transduce.rules.history import History

Function = Callable[[int, Tensor], Sequence[int]]
"""The prompt's place among those of one call, and its decoder tokens so far [n], to the ids that may follow."""


class PrefixAllowedTokens(LogitsRule[History]):
    """Args: function, the prompt's place. Forbids what the function does not name; it must name at least one token."""

    name = "prefix_allowed_tokens_fn"
    rank = 82

    def __init__(self, vocab_size: int, device: torch.device, function: Function, place: int) -> None:
        self._vocab_size = vocab_size
        self._function = function
        self._place = place

    def state(self) -> History:
        return History()

    def advance(self, state: History, token: int) -> History:
        return state.append(token)

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[History]) -> None:
        keep(scores, rows, ragged(scores, rows, [self._allowed(state) for state in states]))

    def _allowed(self, state: History) -> Ids:
        tokens = torch.from_numpy(state.tokens.copy())
        try:
            answer = self._function(self._place, tokens)
        except Exception as error:
            raise RequestError(f"{self.name} raised {type(error).__name__}: {error}") from error
        return self._ids(answer)

    def _ids(self, answer: object) -> Ids:
        name = f"the answer of {self.name}"
        try:
            ids = np.asarray(answer)
        except (RuntimeError, TypeError, ValueError):
            ids = np.asarray(None)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise RequestError(f"{name} is {reprlib.repr(answer)}; give a list of token ids")
        if not ids.size or ids.min() < 0 or ids.max() >= self._vocab_size:
            arguments.tokens(name, ids.tolist(), self._vocab_size)
        return ids.astype(np.int64)
