"""Checks on the arguments of rules: what is refused, and in which words.

Knows no rule. Every message names the rule, the value and the way out.
"""

import math
from collections.abc import Sequence

from transduce.errors import RequestError


def finite(name: str, value: float) -> float:
    """`value`, unless it is infinite or not a number."""
    if not math.isfinite(value):
        raise RequestError(f"{name} is {value}; give a finite number")
    return value


def positive(name: str, value: float) -> float:
    """`value`, unless it is zero, negative, infinite or not a number."""
    if not value > 0 or math.isinf(value):
        raise RequestError(f"{name} is {value}; give a finite number above 0")
    return value


def count(name: str, value: int, least: int = 0) -> int:
    """`value`, unless it is less than `least`."""
    if value < least:
        raise RequestError(f"{name} is {value}; give a whole number of at least {least}")
    return value


def tokens(name: str, ids: Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """`ids`, unless there are none or one is not in [0, vocab_size)."""
    if not ids:
        raise RequestError(f"{name} is empty; give at least one token id")
    for token in ids:
        if not 0 <= token < vocab_size:
            raise RequestError(f"{name} has token id {token}; ids go from 0 to {vocab_size - 1}")
    return tuple(ids)


def known_tokens(ids: Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """Those of `ids` that are in [0, vocab_size): checkpoints forbid ids that their own vocabulary lacks."""
    return tuple(token for token in ids if 0 <= token < vocab_size)
