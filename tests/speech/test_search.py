"""What beams and samples a window is searched with, at each temperature."""

from typing import Any

import pytest

from transduce.core.params import BeamSearchParams, SamplingParams
from transduce.errors import RequestError
from transduce.frontend.frontend import Params
from transduce.speech.search import Search

BEAMS: dict[str, Any] = {"temperature": 0.0, "beam_width": 5, "early_stopping": True, "num_return_sequences": 1}


@pytest.mark.parametrize(
    ("search", "temperature", "given", "expected"),
    [
        ({"beam_size": 5}, 0.0, SamplingParams(max_tokens=9, best_of=3), BeamSearchParams(**BEAMS, max_tokens=9)),
        ({"beam_size": 5, "patience": 2}, 0.0, SamplingParams(temperature=0), BeamSearchParams(**BEAMS, patience=2)),
        (
            {"beam_size": 5},
            0.0,
            BeamSearchParams(length_penalty=0.5, num_return_sequences=3),
            BeamSearchParams(**BEAMS, length_penalty=0.5),
        ),
        (
            {"beam_size": 1},
            0.0,
            SamplingParams(),
            BeamSearchParams(temperature=0.0, beam_width=1, num_return_sequences=1),
        ),
        ({"beam_size": 5}, 0.4, SamplingParams(), SamplingParams(temperature=0.4, seed=0)),
        ({"best_of": 4}, 0.0, SamplingParams(), SamplingParams(temperature=0.0)),
        ({"best_of": 4}, 0.4, SamplingParams(seed=7), SamplingParams(temperature=0.4, seed=7, best_of=4)),
        ({"best_of": 4}, 0.5, SamplingParams(temperature=0.5), SamplingParams(temperature=0.5, best_of=4)),
        ({}, 0.5, BeamSearchParams(temperature=0.5), BeamSearchParams(temperature=0.5)),
    ],
)
def test_parameters_at_a_temperature(
    search: dict[str, Any], temperature: float, given: Params, expected: Params
) -> None:
    assert Search(**search).at(temperature, given) == expected


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"beam_size": 0}, "beam_size=0: give a whole number >= 1"),
        ({"best_of": 1.5}, "best_of=1.5: give a whole number"),
        ({"patience": 2}, "patience=2: it is for beams; give a beam_size above 1"),
        ({"beam_size": 5, "patience": 0}, "patience=0: give a number in"),
        ({"beam_size": 9}, "beam_size=9: at most max_num_seqs=8"),
        ({"best_of": 9}, "best_of=9: at most max_num_seqs=8"),
        ({"beam_size": 5}, "beam_size=5 beside beam_width=4 in sampling_params"),
    ],
)
def test_refusals(search: dict[str, Any], message: str) -> None:
    def ask() -> None:
        asked = Search(**search)
        asked.check(8)
        asked.at(0.0, BeamSearchParams(beam_width=4))

    with pytest.raises(RequestError, match=message):
        ask()
