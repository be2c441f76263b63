"""The rule that an answer is one of several token sequences, and then ends.

Owns the tree of the sequences. Knows no text: which tokens spell a choice is the frontend's to say.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.rules import arguments
from transduce.rules.base import LogitsRule
from transduce.rules.entries import keep, ragged

Node = int
"""Where in the tree an answer is, 0 at its root; below: how many tokens of the decoder prompt are to come."""


class Choices(LogitsRule[Node]):
    """Args: sequences of ids, EOS ids, decoder prompt tokens. Forbids what begins no sequence, and EOS before its end.

    A token that was forced all the same, such as BOS, is passed over.
    """

    name = "choices"
    rank = 85

    def __init__(
        self, vocab_size: int, device: torch.device, choices: Sequence[Sequence[int]], eos: Sequence[int], prompt: int
    ) -> None:
        self._next: list[dict[int, Node]] = [{}]
        self._start = -arguments.count(f"{self.name}'s prompt length", prompt)
        ends = arguments.tokens(self.name, eos, vocab_size)
        for choice in choices:
            last = self._grown(arguments.tokens(self.name, choice, vocab_size))
            self._next[last].update(dict.fromkeys(ends, last))

    def _grown(self, choice: Sequence[int]) -> Node:
        """Where the choice ends, in a tree that now has it."""
        at = 0
        for token in choice:
            if token not in self._next[at]:
                self._next[at][token] = len(self._next)
                self._next.append({})
            at = self._next[at][token]
        return at

    def state(self) -> Node:
        return self._start

    def advance(self, state: Node, token: int) -> Node:
        return state + 1 if state < 0 else self._next[state].get(token, state)

    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[Node]) -> None:
        keep(scores, rows, ragged(scores, rows, [[*self._next[max(0, state)]] for state in states]))
