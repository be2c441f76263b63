"""Lengths: their forms, and what is drawn of them."""

import numpy as np
import pytest

from transduce.bench.lengths import Lengths
from transduce.errors import ConfigError


def test_a_number_is_the_length_of_all() -> None:
    assert Lengths.parse("128").draw(5, np.random.default_rng(0)) == [128] * 5


def test_lognormal_has_its_median_and_sigma() -> None:
    drawn = Lengths.parse("lognormal:96:0.8").draw(20_000, np.random.default_rng(0))
    assert abs(np.median(drawn) - 96) < 3
    assert abs(np.std(np.log(drawn)) - 0.8) < 0.02


def test_what_lies_outside_is_cut() -> None:
    drawn = Lengths.parse("lognormal:96:0.8:60:100").draw(1_000, np.random.default_rng(0))
    assert (min(drawn), max(drawn)) == (60, 100)
    assert min(Lengths.parse("lognormal:1:3").draw(100, np.random.default_rng(0))) == 1


@pytest.mark.parametrize(
    "text",
    ["", "x", "0", "-3", "inf", "nan", "1:2", "normal:3:4", "lognormal:96", "lognormal:96:0.8:8", "lognormal:9:1:9:8"],
)
def test_refusals(text: str) -> None:
    with pytest.raises(ConfigError, match=f"length '{text}': give a number of tokens"):
        Lengths.parse(text)
