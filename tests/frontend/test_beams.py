"""Which beams a request gets: its own over the checkpoint's, none where it asks for samples."""

from typing import Any

import pytest

from tests.frontend.test_sampling import resolve, resolver
from transduce.core.params import BeamSearchParams, GenerationParams, SamplingParams
from transduce.core.request import Beams, Sampling
from transduce.errors import RequestError
from transduce.frontend.sampling import GENERATE_TOP_K

BEAMS: dict[str, Any] = {
    "num_beams": 4,
    "length_penalty": 2.0,
    "early_stopping": True,
    "num_return_sequences": 3,
}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(), (4, Beams(2.0, True, 3))),
        (SamplingParams(temperature=0.0), (4, Beams(2.0, True, 3))),
        (SamplingParams(temperature=1.0), (1, None)),
        (SamplingParams(n=2), (2, None)),
        (BeamSearchParams(), (4, Beams(2.0, True, 3))),
        (BeamSearchParams(beam_width=1), (1, None)),
        (BeamSearchParams(beam_width=2), (2, Beams(2.0, True, 2))),
        (BeamSearchParams(beam_width=8, length_penalty=0, early_stopping="never"), (8, Beams(0.0, "never", 3))),
        (BeamSearchParams(early_stopping=False, num_return_sequences=1), (4, Beams(2.0, False, 1))),
        (BeamSearchParams(patience=1.5), (4, Beams(2.0, True, 3, 1.5))),
    ],
)
def test_beams_are_the_checkpoints_unless_the_request_says_otherwise(
    params: GenerationParams, expected: tuple[int, Beams | None]
) -> None:
    decoding = resolve(params, **BEAMS)
    assert (decoding.width, decoding.beams) == expected
    assert resolver(**BEAMS).width(params) == expected[0]
    answers = expected[0] if expected[1] is None else expected[1].answers
    assert resolver(**BEAMS).answers(params) == answers


def test_beams_of_a_checkpoint_that_asks_for_none() -> None:
    assert resolve(BeamSearchParams(beam_width=3)).beams == Beams(1.0, False, 1)
    assert resolve(BeamSearchParams()).beams is None
    assert resolve(SamplingParams()).beams is None


@pytest.mark.parametrize(
    "asked", [{"length_penalty": 2.0}, {"early_stopping": True}, {"early_stopping": "never"}, {"patience": 2.0}]
)
def test_what_compares_beams_is_refused_where_there_is_one(asked: dict[str, Any]) -> None:
    (name,) = asked
    for params, defaults in ((BeamSearchParams(**asked), {}), (BeamSearchParams(beam_width=1, **asked), BEAMS)):
        with pytest.raises(RequestError, match=f"{name}=.* is for beams, and there is one; give beam_width > 1"):
            resolve(params, **defaults)
    assert resolve(BeamSearchParams(beam_width=2, **asked)).beams is not None


@pytest.mark.parametrize("asked", [{"length_penalty": 1.0}, {"length_penalty": 0}, {"early_stopping": False}])
def test_what_asks_for_nothing_is_taken_where_there_is_one_beam(asked: dict[str, Any]) -> None:
    assert resolve(BeamSearchParams(**asked)).beams is None


def test_beams_are_drawn_where_sampling_is_asked_for() -> None:
    drawn = [
        resolve(SamplingParams(seed=1), num_beams=4, do_sample=True),
        resolve(BeamSearchParams(beam_width=4, temperature=0.5, seed=1, stop_token_ids=[7, 8])),
        resolve(BeamSearchParams(beam_width=1, temperature=0.5, seed=1)),
    ]
    assert [decoding.sampling for decoding in drawn] == [
        Sampling(1.0, GENERATE_TOP_K, 1.0, 0.0, 1, keep=2),
        Sampling(0.5, 0, 1.0, 0.0, 1, keep=4),
        Sampling(0.5, 0, 1.0, 0.0, 1),
    ]
    assert [decoding.beams is None for decoding in drawn] == [False, False, True]
    assert resolve(SamplingParams(temperature=0.0), num_beams=4, do_sample=True).sampling is None


@pytest.mark.parametrize("width", [1, 3])
def test_more_answers_than_beams_are_refused(width: int) -> None:
    with pytest.raises(RequestError, match=rf"num_return_sequences=4: at most as many as beams \(beam_width={width}\)"):
        resolve(BeamSearchParams(beam_width=width, num_return_sequences=4))
    scored = BeamSearchParams(beam_width=4, num_return_sequences=4, max_tokens=0, prompt_logprobs=0)
    with pytest.raises(RequestError, match="max_tokens=0 leaves one"):
        resolve(scored)


def test_log_probabilities_are_normalised_again_where_beams_compare_them() -> None:
    asked = [SamplingParams(), BeamSearchParams(beam_width=2), BeamSearchParams(beam_width=2, temperature=1.0)]
    found = [resolve(params, renormalize_logits=True) for params in asked]
    assert [[rule.name for rule in decoding.rules] for decoding in found] == [[], ["renormalize"], []]
    assert [decoding.sampling and decoding.sampling.normalized for decoding in found] == [None, None, True]
    assert resolve(BeamSearchParams(beam_width=2, renormalize_logits=False), renormalize_logits=True).rules == ()
