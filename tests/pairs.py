"""Products too large for every run: what it takes to see any two values together is run, and the rest is long."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def paired(*axes: Sequence[Any]) -> list[Any]:
    """Parameters for the product of three axes or more; those that are not needed for any pair of values are long."""
    assert len(axes) > 2, "of two axes every pair is the product"
    fewest = min(map(len, axes))  # so that any third axis completes a pair to a sum that this divides
    found = []
    for places in product(*map(range, map(len, axes))):
        values = [axis[place] for axis, place in zip(axes, places, strict=True)]
        found.append(pytest.param(*values, marks=pytest.mark.long if sum(places) % fewest else ()))
    return found
