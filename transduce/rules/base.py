"""The contract of a logits rule: an edit of next-token scores that depends on the tokens so far.

Owns LogitsRule. Knows no request and no batch layout: the runner says which rows of the scores a rule may
touch.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

S = TypeVar("S")


class LogitsRule(ABC, Generic[S]):
    """One rule with its arguments; requests with equal specs share it, each hypothesis has its own state.

    A state is persistent: `advance` returns a new one and leaves the old one valid, so forks share it and
    drafts roll back. It sees every decoder token in order, the prompt's first. Rules that compare equal edit alike:
    one call of `apply` has the states of all.

    name: what a RuleSpec calls the rule.
    rank: rules edit a row in ascending rank, as transformers' processors stand. Families start at 200.
    """

    name: ClassVar[str]
    rank: ClassVar[int]

    @abstractmethod
    def __init__(self, vocab_size: int, device: torch.device, *args: Any) -> None:
        """From a spec's args, for scores [rows, vocab_size] on `device`.

        Raises RequestError for args that cannot work.
        """

    @abstractmethod
    def state(self) -> S:
        """The state before any token."""

    @abstractmethod
    def advance(self, state: S, token: int) -> S:
        """The state after one more token."""

    def holds(self, state: S) -> bool:
        """Whether `apply` may change the scores after this state: where no rule does, they are never written out."""
        return True

    @abstractmethod
    def apply(self, rows: Sequence[int], scores: Tensor, states: Sequence[S]) -> None:
        """Edit scores [rows, vocab] (float32) in place, at `rows` only, each by its state; -inf forbids.

        `rows` names at least one row and none twice.
        """
