"""Rules that look only at how many decoder tokens there are, the decoder prompt's included.

Owns what is forbidden or forced at which length; the lengths themselves come with the arguments.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.rules import arguments
from transduce.rules.base import LogitsRule
from transduce.rules.entries import forbid, force, grid


class _ByLength(LogitsRule[int]):
    """A rule whose state is the number of decoder tokens; `tokens` [n] are what it forbids or forces."""

    tokens: Tensor

    @abstractmethod
    def holds(self, state: int) -> bool:
        """Whether the rule edits the scores that follow so many tokens."""

    @abstractmethod
    def edit(self, rows: Sequence[int], scores: Tensor) -> None:
        """Edit the rows of scores [rows, vocab] where the rule holds."""

    def state(self) -> int:
        return 0

    def advance(self, state: int, token: int) -> int:
        return state + 1

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[int]) -> None:
        held = [row for row, length in zip(rows, states, strict=True) if self.holds(length)]
        if held:
            self.edit(held, scores)


class _Forbidding(_ByLength):
    """Args: a length, ids. Forbids the ids where the rule holds; ids outside the vocabulary mean nothing."""

    def __init__(self, vocab_size: int, device: torch.device, length: int, ids: Sequence[int]) -> None:
        self.length = arguments.count(f"{self.name}'s length", length)
        known = arguments.known_tokens(ids, vocab_size)
        self.tokens = torch.tensor(known, dtype=torch.long, device=device)

    def edit(self, rows: Sequence[int], scores: Tensor) -> None:
        forbid(scores, grid(rows, self.tokens))


class MinTokens(_Forbidding):
    """Args: length, ids. Forbids the ids (EOS, stop tokens) until there are `length` decoder tokens.

    transformers' min_length is that length; for min_new_tokens it is the prompt's length more.
    """

    name = "min_tokens"
    rank = 70

    def holds(self, state: int) -> bool:
        return state < self.length


class BeginSuppressTokens(_Forbidding):
    """Args: begin index, ids. Forbids the ids right after exactly `begin index` decoder tokens.

    In transformers that is the decoder prompt's length, but 2 for a prompt of one token where BOS is forced.
    """

    name = "begin_suppress_tokens"
    rank = 120

    def holds(self, state: int) -> bool:
        return state == self.length


class _Forcing(_ByLength):
    """Leaves nothing but `tokens` where the rule holds."""

    def edit(self, rows: Sequence[int], scores: Tensor) -> None:
        force(scores, rows, self.tokens)


class ForcedBos(_Forcing):
    """Args: id. Forces it right after the start token, that is where there is exactly one decoder token."""

    name = "forced_bos"
    rank = 90

    def __init__(self, vocab_size: int, device: torch.device, token: int) -> None:
        self.tokens = torch.tensor(arguments.tokens(self.name, (token,), vocab_size), device=device)

    def holds(self, state: int) -> bool:
        return state == 1


class ForcedEos(_Forcing):
    """Args: length, ids. Forces one of the ids to be the decoder token that makes `length` of them."""

    name = "forced_eos"
    rank = 100

    def __init__(self, vocab_size: int, device: torch.device, length: int, ids: Sequence[int]) -> None:
        self.length = arguments.count(f"{self.name}'s length", length)
        self.tokens = torch.tensor(arguments.tokens(self.name, ids, vocab_size), device=device)

    def holds(self, state: int) -> bool:
        return state == self.length - 1
