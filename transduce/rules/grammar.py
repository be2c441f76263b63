"""The rule that an answer follows a grammar: only tokens with which it still can are allowed, EOS where it may end.

Owns how far an answer has come in its grammar. Which bytes a token spells is `rules.vocabulary`'s.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from llguidance import LLMatcher
from torch import Tensor

from transduce.rules.base import LogitsRule
from transduce.rules.entries import whole
from transduce.rules.vocabulary import Vocabulary, compiled

LOOKED_AHEAD = 64
"""Tokens that are tried, where one may lead to where no other can follow."""

Mask = npt.NDArray[np.uint8]
"""1 by id for what may follow, of tokens or of all forms."""


class Progress(NamedTuple):
    """matcher: after the answer so far, never changed. prompt: its tokens that are still to come.

    begun: whether a token has been that spells something.
    """

    matcher: LLMatcher
    prompt: int
    begun: bool


class Grammar(LogitsRule[Progress]):
    """Args: vocabulary, Lark grammar, decoder prompt tokens. Forbids what leaves the grammar. Special tokens pass."""

    name = "grammar"
    rank = 85

    def __init__(self, vocab_size: int, device: torch.device, vocabulary: Vocabulary, lark: str, prompt: int) -> None:
        self._vocabulary = vocabulary
        self._start = Progress(compiled(vocabulary, lark).deep_copy(), prompt, False)

    def state(self) -> Progress:
        return self._start

    def advance(self, state: Progress, token: int) -> Progress:
        if state.prompt:
            return state._replace(prompt=state.prompt - 1)
        matcher = state.matcher.deep_copy()
        form = token if state.begun else int(self._vocabulary.first_ids[token])
        taken = matcher.try_consume_tokens([form])
        if not taken and not matcher.is_error():
            return state._replace(begun=state.begun or token in self._vocabulary.silent)
        return Progress(matcher, 0, state.begun or bool(self._vocabulary.tokens[token]))

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[Progress]) -> None:
        forbidden = torch.from_numpy(np.stack([self._allowed(state) for state in states])).to(scores.device) == 0
        at = whole(rows, scores.device)
        scores[at] = scores[at].masked_fill_(forbidden, -torch.inf)

    def _allowed(self, state: Progress) -> Mask:
        """The tokens [tokens] that may follow; none where nothing can."""
        known = self._vocabulary
        forms = self._forms(state.matcher)
        if not known.closed:
            self._look_ahead(state.matcher, forms)
        within = forms[: len(known.tokens)]
        if state.begun:
            return within
        first = forms[known.first_ids]
        if within.sum() > within[[*known.eos]].sum():
            first[[*known.silent]] = 1
        return first

    def _forms(self, matcher: LLMatcher) -> Mask:
        """The forms that the grammar lets follow."""
        size = len(self._vocabulary.tokens) + len(self._vocabulary.first)
        words = np.zeros((size + 31) // 32, np.uint32)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.is_error():  # it would now let EOS pass
            words[:] = 0
        return np.unpackbits(words.view(np.uint8), count=size, bitorder="little")

    def _look_ahead(self, matcher: LLMatcher, forms: Mask) -> None:
        """Take out forms after which nothing fits: the rest of a character or word may exist in longer ones only."""
        ids: list[int] = forms.nonzero()[0].tolist()
        for form in {*ids} - {*self._vocabulary.eos} if len(ids) <= LOOKED_AHEAD else ():
            after = matcher.deep_copy()
            after.consume_token(form)
            forms[form] = self._forms(after)[: len(self._vocabulary.tokens)].any()
