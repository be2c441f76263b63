"""Drafts that are mostly right: what a request alone would answer, with faults."""

import random
from collections.abc import Sequence

from tests.core.fake_runner import VOCABULARY, alone
from transduce.core.request import Request
from transduce.core.speculation import Drafter, Speculation


class Told(Drafter):
    """Knows the answer."""

    def __init__(self, answer: list[int]) -> None:
        super().__init__(answer, (0,), lambda token: True)

    def see(self, token: int) -> bool | None:
        self._place += 1
        return None


class Guesses(Speculation):
    """Drafts as long as it pleases, and some of their tokens wrong."""

    def __init__(self, rng: random.Random, faults: float) -> None:
        super().__init__(VOCABULARY, lambda rows: rows)
        self._rng = rng
        self._faults = faults

    def drafter(self, request: Request) -> Drafter | None:
        """One that has been told."""
        return super().drafter(request) and Told(alone(request)[0].tokens)

    def draft(self, drafters: Sequence[tuple[Drafter, int]], tokens: int, rows: int, most: int) -> list[list[int]]:
        """Up to five tokens each."""
        return [self._some(drafter, limit, most // len(drafters)) for drafter, limit in drafters]

    def _some(self, drafter: Drafter, *most: int) -> list[int]:
        tokens = drafter.ahead(min(*most, self._rng.randrange(6)))
        return [(token + (self._rng.random() < self._faults)) % VOCABULARY for token in tokens]
