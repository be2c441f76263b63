"""Penalties on tokens that have occurred: repetition (as transformers), frequency and presence (as vLLM).

Owns how often each token has been, and how that lowers scores; nothing here forbids a token.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.rules import arguments
from transduce.rules.base import LogitsRule
from transduce.rules.entries import Ids, moved, ragged


class Counts(NamedTuple):
    """tokens [n]: each that has been, once. times [n]: how often it has. prompt: tokens to come that do not count."""

    tokens: Ids
    times: Ids
    prompt: int

    def counted(self, token: int) -> "Counts":
        """With one more token."""
        if self.prompt:
            return self._replace(prompt=self.prompt - 1)
        here = self.tokens == token
        if here.any():
            return Counts(self.tokens, self.times + here, 0)
        return Counts(np.concatenate((self.tokens, (token,))), np.concatenate((self.times, (1,))), 0)


class _Counting(LogitsRule[Counts]):
    """A rule whose state is how often each token of the vocabulary has been, the first `prompt` tokens left out."""

    def __init__(self, vocab_size: int, device: torch.device, penalty: float, prompt: int = 0) -> None:
        self.penalty = arguments.finite(self.name, penalty)
        self._vocab_size = vocab_size
        self._prompt = arguments.count(f"{self.name}'s prompt length", prompt)

    def state(self) -> Counts:
        none = np.empty(0, dtype=np.int64)
        return Counts(none, none, self._prompt)

    def advance(self, state: Counts, token: int) -> Counts:
        return state.counted(token) if state.prompt or token < self._vocab_size else state

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[Counts]) -> None:
        entries = ragged(scores, rows, [state.tokens for state in states])
        times = moved(np.concatenate([state.times for state in states]), scores.device)
        scores[entries] = self.lowered(scores[entries], times)

    @abstractmethod
    def lowered(self, scores: Tensor, times: Tensor) -> Tensor:
        """What becomes of scores [n] of tokens that have been `times` [n] times, at least once."""


class RepetitionPenalty(_Counting):
    """Args: penalty. Divides positive scores of decoder tokens so far, prompt included; multiplies others."""

    name = "repetition_penalty"
    rank = 20

    def __init__(self, vocab_size: int, device: torch.device, penalty: float) -> None:
        super().__init__(vocab_size, device, arguments.positive(self.name, penalty))

    def lowered(self, scores: Tensor, times: Tensor) -> Tensor:
        return torch.where(scores < 0, scores * self.penalty, scores / self.penalty)


class FrequencyPenalty(_Counting):
    """Args: penalty, decoder prompt tokens. Subtracts the penalty for each time a token was generated."""

    name = "frequency_penalty"
    rank = 30

    def lowered(self, scores: Tensor, times: Tensor) -> Tensor:
        return scores - times * self.penalty


class PresencePenalty(_Counting):
    """Args: penalty, decoder prompt tokens. Subtracts the penalty once from tokens that were generated."""

    name = "presence_penalty"
    rank = 40

    def lowered(self, scores: Tensor, times: Tensor) -> Tensor:
        return scores - self.penalty
