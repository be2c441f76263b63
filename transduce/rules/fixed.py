"""Rules that look at no token: a bias, tokens that are always or never allowed, and a row's sum.

Owns what a request wants of every position alike.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.rules import arguments
from transduce.rules.base import LogitsRule
from transduce.rules.entries import forbid, grid, keep, whole


class _Stateless(LogitsRule[None]):
    """A rule that edits every position alike."""

    def state(self) -> None:
        return None

    def advance(self, state: None, token: int) -> None:
        return None


class LogitBias(_Stateless):
    """Args: ((token, bias), ...). Adds each bias to its token's score."""

    name = "logit_bias"
    rank = 10

    def __init__(self, vocab_size: int, device: torch.device, biases: Sequence[tuple[int, float]]) -> None:
        ids = arguments.tokens(self.name, [token for token, _ in biases], vocab_size)
        values = [arguments.finite(f"{self.name} of token {token}", bias) for token, bias in biases]
        self.tokens = torch.tensor(ids, device=device)
        self.biases = torch.tensor(values, dtype=torch.float32, device=device)

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[None]) -> None:
        scores[grid(rows, self.tokens)] += self.biases


class AllowedTokens(_Stateless):
    """Args: ids. Forbids every other token."""

    name = "allowed_tokens"
    rank = 80

    def __init__(self, vocab_size: int, device: torch.device, ids: Sequence[int]) -> None:
        self.tokens = torch.tensor(arguments.tokens(self.name, ids, vocab_size), device=device)

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[None]) -> None:
        keep(scores, rows, grid(rows, self.tokens))


class SuppressTokens(_Stateless):
    """Args: ids. Forbids them; ids outside the vocabulary mean nothing."""

    name = "suppress_tokens"
    rank = 110

    def __init__(self, vocab_size: int, device: torch.device, ids: Sequence[int]) -> None:
        known = arguments.known_tokens(ids, vocab_size)
        self.tokens = torch.tensor(known, dtype=torch.long, device=device)

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[None]) -> None:
        forbid(scores, grid(rows, self.tokens))


class Renormalize(_Stateless):
    """No args. Makes what the other rules have left of log-probabilities sum to 1 again, where they have left any."""

    name = "renormalize"
    rank = 1000

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        pass

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[None]) -> None:
        at = whole(rows, scores.device)
        found = scores[at]
        dead = (found == -torch.inf).all(-1, keepdim=True)
        scores[at] = torch.where(dead, found, found.log_softmax(-1))
