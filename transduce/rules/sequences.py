"""Rules that forbid the token that would complete a sequence: one seen before, or one of a list.

Owns the match against the last tokens. What a token costs does not grow with history: the last few tokens are
at hand, and what followed them before is looked up in a persistent map.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from transduce.rules import arguments, radix
from transduce.rules.base import LogitsRule
from transduce.rules.entries import forbid, ragged

Tokens = tuple[int, ...]


class Followers(NamedTuple):
    """The tokens that have followed one prefix, newest first."""

    token: int
    earlier: Optional["Followers"]


class Ngrams(NamedTuple):
    """tail: the last n - 1 tokens. followers: by prefix of n - 1 tokens (see `_key`)."""

    tail: Tokens
    followers: radix.Map[Followers]


class NoRepeatNgram(LogitsRule[Ngrams]):
    """Args: n. Forbids tokens that would complete an n-gram of the decoder tokens so far, prompt included."""

    name = "no_repeat_ngram"
    rank = 50

    def __init__(self, vocab_size: int, device: torch.device, size: int) -> None:
        self.size = arguments.count(self.name, size, least=1)

    def state(self) -> Ngrams:
        return Ngrams((), None)

    def advance(self, state: Ngrams, token: int) -> Ngrams:
        tail = (*state.tail, token)
        if len(tail) < self.size:
            return Ngrams(tail, state.followers)
        key = _key(state.tail)
        followers = Followers(token, radix.get(state.followers, key))
        return Ngrams(tail[1:], radix.put(state.followers, key, followers))

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[Ngrams]) -> None:
        forbid(scores, ragged(scores, rows, [list(_completions(state)) for state in states]))


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

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[Tokens]) -> None:
        forbid(scores, ragged(scores, rows, [self._completions(tail) for tail in states]))

    def _completions(self, tail: Tokens) -> list[int]:
        ends = [tail[len(tail) - length :] for length in self.lengths if length <= len(tail)]
        return [token for end in ends for token in self.endings.get(end, ())]


def _completions(state: Ngrams) -> Iterator[int]:
    followers = radix.get(state.followers, _key(state.tail))
    while followers is not None:
        yield followers.token
        followers = followers.earlier


def _key(prefix: Tokens) -> int:
    """A number of its own for each prefix of one length (token ids are below 2**32)."""
    key = 0
    for token in prefix:
        key = key << 32 | token
    return key
