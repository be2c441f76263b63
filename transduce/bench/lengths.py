"""Lengths in tokens: one for all requests, or drawn from a lognormal distribution."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from transduce.errors import ConfigError

LOGNORMAL = "lognormal:"
FORMS = "give a number of tokens, lognormal:MEDIAN:SIGMA or lognormal:MEDIAN:SIGMA:LOWEST:HIGHEST"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal with this median and sigma, of which 0 makes all the same; what lies outside `low` to `high` is cut."""

    median: float
    sigma: float = 0.0
    low: float = 1.0
    high: float = np.inf

    @classmethod
    def parse(cls, text: str) -> Self:
        """`128`, `lognormal:96:0.8` or `lognormal:96:0.8:8:900`. Raises ConfigError for others."""
        numbers = text.removeprefix(LOGNORMAL).split(":")
        allowed = (2, 4) if text.startswith(LOGNORMAL) else (1,)
        try:
            made = cls(*map(float, numbers)) if len(numbers) in allowed else None
        except ValueError:
            made = None
        if made is None or not made._possible():
            raise ConfigError(f"length {text!r}: {FORMS}")
        return made

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """So many lengths."""
        drawn = self.median * np.exp(self.sigma * rng.standard_normal(count))
        return [int(length) for length in np.clip(drawn, self.low, self.high)]

    def _possible(self) -> bool:
        return 1 <= self.low <= self.high and 1 <= self.median < np.inf and 0 <= self.sigma < np.inf
