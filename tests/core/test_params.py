"""Parameters: every refusal names the value and the way out."""

from typing import Any, Literal

import numpy as np
import pytest

from transduce.core.params import BeamSearchParams, SamplingParams
from transduce.errors import RequestError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n=0: give a whole number >= 1"),
    ({"n": True}, "n=True: give a whole number >= 1"),
    ({"n": 1.0}, "n=1.0: give a whole number >= 1"),
    ({"n": None}, "n=None: give a whole number >= 1"),
    ({"top_k": -2}, "top_k=-2: give a whole number >= -1"),
    ({"top_k": 0.5}, "top_k=0.5: give a whole number >= -1"),
    ({"seed": -1}, "seed=-1: give a whole number >= 0"),
    ({"seed": 2**64}, "seed=18446744073709551616: give a whole number below 2**64"),
    ({"max_tokens": 0}, "max_tokens=0: give at least 1, or prompt_logprobs too"),
    ({"max_tokens": -1}, "max_tokens=-1: give a whole number >= 0"),
    ({"max_tokens": np.True_}, "max_tokens=np.True_: give a whole number >= 0"),
    ({"prompt_logprobs": -1}, "prompt_logprobs=-1: give a whole number >= 0"),
    ({"prompt_logprobs": 1, "max_tokens": 0, "n": 2}, "n=2: without tokens (max_tokens=0) there is one answer"),
    ({"n": 3, "best_of": 2}, "best_of=2: n=3 of them are wanted; give at least as many"),
    ({"min_tokens": -1}, "min_tokens=-1: give a whole number >= 0"),
    ({"logprobs": "5"}, "logprobs='5': give a whole number >= 0"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens=0: give a whole number >= 1"),
    ({"temperature": -0.1}, "temperature=-0.1: give 0 (greedy) or a number in [1e-05, 10000]"),
    ({"temperature": 1e-40}, "temperature=1e-40: give 0 (greedy) or a number in [1e-05, 10000]"),
    ({"temperature": float("nan")}, "temperature=nan: give 0 (greedy) or a number in [1e-05, 10000]"),
    ({"temperature": float("inf")}, "temperature=inf: give 0 (greedy) or a number in [1e-05, 10000]"),
    ({"temperature": "1"}, "temperature='1': give 0 (greedy) or a number in [1e-05, 10000]"),
    ({"temperature": True}, "temperature=True: give 0 (greedy) or a number in [1e-05, 10000]"),
    ({"temperature": np.True_}, "temperature=np.True_: give 0 (greedy) or a number in [1e-05, 10000]"),
    ({"top_p": 0}, "top_p=0: give a number in (0, 1]"),
    ({"top_p": 1.1}, "top_p=1.1: give a number in (0, 1]"),
    ({"min_p": -1}, "min_p=-1: give a number in [0, 1]"),
    ({"presence_penalty": 2.1}, "presence_penalty=2.1: give a number in [-2, 2]"),
    ({"presence_penalty": None}, "presence_penalty=None: give a number in [-2, 2]"),
    ({"frequency_penalty": None}, "frequency_penalty=None: give a number in [-2, 2]"),
    ({"frequency_penalty": -2.1}, "frequency_penalty=-2.1: give a number in [-2, 2]"),
    ({"repetition_penalty": 0.0}, "repetition_penalty=0.0: give a number in [0.01, 10000]"),
    ({"repetition_penalty": 1e-40}, "repetition_penalty=1e-40: give a number in [0.01, 10000]"),
    ({"ignore_eos": "no"}, "ignore_eos='no': give True or False"),
    ({"skip_special_tokens": None}, "skip_special_tokens=None: give True or False"),
    ({"include_stop_str_in_output": 1}, "include_stop_str_in_output=1: give True or False"),
    ({"stop_token_ids": 5}, "stop_token_ids=5: give a list of token ids"),
    ({"stop_token_ids": "5"}, "stop_token_ids='5': give a list of token ids"),
    ({"stop_token_ids": [5, -1]}, "stop_token_ids=-1: give a whole number >= 0"),
    ({"allowed_token_ids": b"5"}, "allowed_token_ids=b'5': give a list of token ids"),
    ({"allowed_token_ids": [1.5]}, "allowed_token_ids=1.5: give a whole number >= 0"),
    ({"allowed_token_ids": []}, "allowed_token_ids=[]: name at least one"),
    ({"stop": ""}, "stop='': give non-empty strings"),
    ({"stop": ["a", ""]}, "stop='': give non-empty strings"),
    ({"stop": [1]}, "stop=1: give non-empty strings"),
    ({"stop": 5}, "stop=5: give a list of strings"),
    ({"stop": b"a"}, "stop=b'a': give a list of strings"),
    ({"bad_words": "bad"}, "bad_words='bad': give a list of strings or lists of token ids"),
    ({"bad_words": 5}, "bad_words=5: give a list of strings or lists of token ids"),
    ({"bad_words": [5]}, "bad_words=5: give a list of token ids"),
    ({"bad_words": [""]}, "bad_words='': give non-empty strings or lists of token ids"),
    ({"bad_words": [[]]}, "bad_words=[]: give non-empty strings or lists of token ids"),
    ({"bad_words": [["a"]]}, "bad_words='a': give a whole number >= 0"),
    ({"logit_bias": [1]}, "logit_bias=[1]: give a map from token ids to numbers"),
    ({"logit_bias": {"7": 1}}, "logit_bias='7': give a whole number >= 0"),
    ({"logit_bias": {7: 100.5}}, "logit_bias[7]=100.5: give a number in [-100, 100]"),
    ({"suppress_tokens": 5}, "suppress_tokens=5: give a list of token ids"),
    ({"begin_suppress_tokens": [-1]}, "begin_suppress_tokens=-1: give a whole number >= 0"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1: give a whole number >= 0"),
    ({"encoder_no_repeat_ngram_size": 1.5}, "encoder_no_repeat_ngram_size=1.5: give a whole number >= 0"),
    ({"forced_bos_token_id": -2}, "forced_bos_token_id=-2: give a whole number >= -1"),
    ({"forced_eos_token_id": True}, "forced_eos_token_id=True: give a whole number >= -1"),
    ({"forced_eos_token_id": [-1]}, "forced_eos_token_id=-1: give a whole number >= 0"),
    ({"renormalize_logits": 1}, "renormalize_logits=1: give True or False"),
    ({"prefix_allowed_tokens_fn": 7}, "prefix_allowed_tokens_fn=7: give a function"),
    ({"min_tokens": 3, "max_tokens": 2}, "min_tokens=3: it may not exceed max_tokens=2"),
]

BEAMS_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"beam_width": 0}, "beam_width=0: give a whole number >= 1"),
    ({"num_return_sequences": 0}, "num_return_sequences=0: give a whole number >= 1"),
    ({"length_penalty": 11}, "length_penalty=11: give a number in [-10, 10]"),
    ({"early_stopping": "always"}, "early_stopping='always': give True, False or 'never'"),
    ({"early_stopping": 1}, "early_stopping=1: give True, False or 'never'"),
    ({"beam_width": 1, "max_tokens": 0}, "max_tokens=0: give at least 1, or prompt_logprobs too"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_what_cannot_work_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**fields)
    assert str(caught.value) == message


@pytest.mark.parametrize(("fields", "message"), BEAMS_REFUSED)
def test_beams_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        BeamSearchParams(**fields)
    assert str(caught.value) == message


def test_the_ends_of_every_range_are_inside() -> None:
    low = SamplingParams(
        n=1, temperature=0, top_p=1e-9, top_k=-1, min_p=0, seed=0, max_tokens=1, min_tokens=0, logprobs=0,
        presence_penalty=-2, frequency_penalty=-2, repetition_penalty=0.01, truncate_prompt_tokens=1,
        logit_bias={0: -100}, allowed_token_ids=(0,), stop_token_ids=[], stop=[], bad_words=[],
    )  # fmt: skip
    high = SamplingParams(
        temperature=1e4, top_p=1, seed=2**64 - 1, min_p=1.0, min_tokens=7, max_tokens=7, presence_penalty=2.0,
        frequency_penalty=2, repetition_penalty=10000, logit_bias={0: 100.0}, bad_words=["a", [1, 2]],
        allowed_token_ids=range(3),
    )  # fmt: skip
    assert (low.top_k, high.min_tokens) == (-1, 7)
    assert SamplingParams(temperature=1e-5).temperature == 1e-5


def test_numpys_numbers_are_kept_as_pythons() -> None:
    numpys: dict[str, Any] = {
        "n": np.int8(2),
        "temperature": np.float32(0.5),
        "max_tokens": np.int64(3),
        "presence_penalty": np.float16(1),
        "stop_token_ids": np.array([5, 6]),
        "bad_words": [np.array([7, 8])],
        "logit_bias": {np.int64(9): np.float32(2)},
    }
    plain = SamplingParams(
        n=2,
        temperature=0.5,
        max_tokens=3,
        presence_penalty=1.0,
        stop_token_ids=[5, 6],
        bad_words=[[7, 8]],
        logit_bias={9: 2.0},
    )
    assert repr(SamplingParams(**numpys)) == repr(plain)


@pytest.mark.parametrize(("stop", "strings"), [(None, ()), ("ab", ("ab",)), (["a", "b"], ("a", "b"))])
def test_stop_strings(stop: str | list[str] | None, strings: tuple[str, ...]) -> None:
    assert SamplingParams(stop=stop).stop_strings == strings


@pytest.mark.parametrize("early_stopping", [True, False, "never", None])
def test_beams_are_kept_as_given(early_stopping: bool | Literal["never"] | None) -> None:
    params = BeamSearchParams(
        beam_width=np.int64(4),  # type: ignore[arg-type]
        length_penalty=-2,
        early_stopping=early_stopping,
        num_return_sequences=3,
    )
    given = (params.beam_width, params.length_penalty, params.early_stopping, params.num_return_sequences)
    assert repr(given) == repr((4, -2.0, early_stopping, 3))
