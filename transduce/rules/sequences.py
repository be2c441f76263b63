"""Rules that forbid the token that would complete a sequence: one seen before, one of the source's, or one of a list.

Owns the match against the last tokens. What a token costs does not grow with history: the last few tokens are
at hand, and what followed them before is looked up in a persistent map.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.rules import arguments, radix
from transduce.rules.base import LogitsRule
from transduce.rules.entries import forbid, ragged

Tokens = tuple[int, ...]


class Ngrams(NamedTuple):
    """tail: the last n - 1 tokens. followers: what has followed prefixes of n - 1 tokens, by their hash."""

    tail: Tokens
    followers: radix.Map[Mapping[Tokens, Tokens]]

    @property
    def known(self) -> Mapping[Tokens, Tokens]:
        """What has followed prefixes with the tail's hash."""
        return radix.get(self.followers, _hash(self.tail)) or {}


class NoRepeatNgram(LogitsRule[Ngrams]):
    """Args: n. Forbids tokens that would complete an n-gram of the decoder tokens so far, prompt included."""

    name = "no_repeat_ngram"
    rank = 50

    def __init__(self, vocab_size: int, device: torch.device, size: int) -> None:
        self._vocab_size = vocab_size
        self.size = arguments.count(self.name, size, least=1)

    def state(self) -> Ngrams:
        return Ngrams((), None)

    def advance(self, state: Ngrams, token: int) -> Ngrams:
        tail = (*state.tail, token)
        if len(tail) < self.size:
            return Ngrams(tail, state.followers)
        known = state.known
        follower = (token,) if token < self._vocab_size else ()  # others stand in prompts, and are never chosen
        followers = {**known, state.tail: (*known.get(state.tail, ()), *follower)}
        return Ngrams(tail[1:], radix.put(state.followers, _hash(state.tail), followers))

    def holds(self, state: Ngrams) -> bool:
        return state.tail in state.known

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[Ngrams]) -> None:
        forbid(scores, ragged(scores, rows, [state.known.get(state.tail, ()) for state in states]))


class SourceNgrams(NamedTuple):
    """tail: the last n - 1 decoder tokens. followers: what follows a prefix of n - 1 tokens in the source."""

    tail: Tokens
    followers: Mapping[Tokens, Sequence[int]]


class EncoderNoRepeatNgram(LogitsRule[SourceNgrams]):
    """Args: n, source ids. Forbids tokens that would complete an n-gram of the source, special tokens included."""

    name = "encoder_no_repeat_ngram"
    rank = 55

    def __init__(self, vocab_size: int, device: torch.device, size: int, source: Sequence[int]) -> None:
        self._kept = arguments.count(self.name, size, least=1) - 1
        followers: dict[Tokens, list[int]] = {}
        for *prefix, token in zip(*(source[start:] for start in range(min(size, len(source) + 1))), strict=False):
            followers.setdefault(tuple(prefix), []).append(token)
        self._followers = followers

    def __eq__(self, other: object) -> bool:
        """All edit alike: states have the sources."""
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def state(self) -> SourceNgrams:
        return SourceNgrams((), self._followers)

    def advance(self, state: SourceNgrams, token: int) -> SourceNgrams:
        tail = (*state.tail, token)
        return state._replace(tail=tail[max(0, len(tail) - self._kept) :])

    def holds(self, state: SourceNgrams) -> bool:
        return state.tail in state.followers

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[SourceNgrams]) -> None:
        forbid(scores, ragged(scores, rows, [state.followers.get(state.tail, ()) for state in states]))


class BadWords(LogitsRule[Tokens]):
    """Args: words (tuples of ids), EOS ids. Forbids a word's last id where its others are the last tokens.

    A word that is nothing but an EOS id is left out, as transformers does.
    """

    name = "bad_words"
    rank = 60

    def __init__(
        self, vocab_size: int, device: torch.device, words: Sequence[Sequence[int]], eos: Sequence[int] = ()
    ) -> None:
        self.endings: dict[Tokens, list[int]] = {}
        for word in words:
            ids = arguments.tokens(self.name, word, vocab_size)
            if len(ids) > 1 or ids[0] not in eos:
                self.endings.setdefault(ids[:-1], []).append(ids[-1])
        self.lengths = {len(beginning) for beginning in self.endings}

    def state(self) -> Tokens:
        return ()

    def advance(self, state: Tokens, token: int) -> Tokens:
        longest = max(self.lengths, default=0)
        return (*state, token)[-longest:] if longest else ()

    def holds(self, state: Tokens) -> bool:
        return bool(self._completions(state))

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[Tokens]) -> None:
        forbid(scores, ragged(scores, rows, [self._completions(tail) for tail in states]))

    def _completions(self, tail: Tokens) -> list[int]:
        ends = [tail[len(tail) - length :] for length in self.lengths if length <= len(tail)]
        return [token for end in ends for token in self.endings.get(end, ())]


def _hash(prefix: Tokens) -> int:
    return hash(prefix) & 0xFFFF_FFFF
