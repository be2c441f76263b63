"""Checks on the values of parameters: of which type and in which range they are, kept as Python's own.

Knows no parameter. Every message names the parameter, the value and the way out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from transduce.errors import RequestError

NO_TOKEN = -1
"""Given as a token id: none."""

LENGTH = 60
"""Characters of a refused value that a message shows."""


def shown(value: object) -> str:
    """A value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"


def _is_a(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` (itself outside where `open_low`) to `high`, and 0 too where it has a meaning, `zero`."""

    low: float
    high: float
    open_low: bool = False
    zero: str = ""

    def __contains__(self, value: Any) -> bool:
        if not _is_a(Real, value):
            return False
        inside = self.low <= value <= self.high and not (self.open_low and value == self.low)
        return bool(inside or (self.zero and value == 0))

    def __str__(self) -> str:
        zero = f"0 ({self.zero}) or " if self.zero else ""
        return f"{zero}a number in {'(' if self.open_low else '['}{self.low:g}, {self.high:g}]"


def require(ok: bool, name: str, value: object, fix: str) -> None:
    """Raise RequestError unless `ok`."""
    if not ok:
        raise RequestError(f"{name}={shown(value)}: {fix}")


def integer(name: str, value: Any, low: int) -> int:
    """A whole number from `low` on."""
    inside = _is_a(Integral, value) and value >= low
    require(inside, name, value, f"give a whole number >= {low}")
    return int(value)


def number(name: str, value: Any, within: Range) -> float:
    """A number in a range."""
    require(value in within, name, value, f"give {within}")
    return float(value)


def listed(name: str, value: object, of: str) -> None:
    """A list, or another collection, but no text and no map."""
    fits = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    require(fits, name, value, f"give a list of {of}")


def token_ids(name: str, ids: Collection[int]) -> list[int]:
    """Token ids; which the model has is not known here."""
    listed(name, ids, "token ids")
    return [integer(name, token, 0) for token in ids]


def any_tokens(name: str, ids: int | Collection[int]) -> list[int]:
    """Token ids, or one alone, which may be NO_TOKEN."""
    if isinstance(ids, Collection):
        return token_ids(name, ids)
    token = integer(name, ids, NO_TOKEN)
    return [] if token == NO_TOKEN else [token]
