"""Penalties on tokens that have occurred: repetition (as transformers), frequency and presence (as vLLM).

Owns how the tokens so far lower scores; nothing here forbids a token.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.rules import arguments
from transduce.rules.base import LogitsRule
from transduce.rules.entries import counted, ragged
from transduce.rules.history import History


class _OverHistory(LogitsRule[History]):
    """A rule whose state is all decoder tokens so far."""

    def state(self) -> History:
        return History()

    def advance(self, state: History, token: int) -> History:
        return state.append(token)


class RepetitionPenalty(_OverHistory):
    """Args: penalty. Divides positive scores of decoder tokens so far, prompt included; multiplies others."""

    name = "repetition_penalty"
    rank = 20

    def __init__(self, vocab_size: int, device: torch.device, penalty: float) -> None:
        self.penalty = arguments.positive(self.name, penalty)

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[History]) -> None:
        entries = ragged(scores, rows, [state.tokens for state in states])
        found = scores[entries]
        scores[entries] = torch.where(found < 0, found * self.penalty, found / self.penalty)


class _OutputPenalty(_OverHistory):
    """Args: penalty, decoder prompt tokens. Lowers the scores of tokens that stand after the prompt."""

    def __init__(self, vocab_size: int, device: torch.device, penalty: float, prompt: int) -> None:
        self.penalty = arguments.finite(self.name, penalty)
        self.prompt = arguments.count(f"{self.name}'s prompt length", prompt)

    @abstractmethod
    def cost(self, counts: Tensor) -> Tensor:
        """What to subtract [n] from tokens that occurred `counts` [n] times, at least once."""

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[History]) -> None:
        entries, counts = counted(scores, rows, [state.tokens[self.prompt :] for state in states])
        scores[entries] -= self.cost(counts)


class FrequencyPenalty(_OutputPenalty):
    """Args: penalty, decoder prompt tokens. Subtracts the penalty for each time a token was generated."""

    name = "frequency_penalty"
    rank = 30

    def cost(self, counts: Tensor) -> Tensor:
        return counts * self.penalty


class PresencePenalty(_OutputPenalty):
    """Args: penalty, decoder prompt tokens. Subtracts the penalty once from tokens that were generated."""

    name = "presence_penalty"
    rank = 40

    def cost(self, counts: Tensor) -> Tensor:
        return torch.full_like(counts, self.penalty, dtype=torch.float32)
