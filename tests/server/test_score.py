"""/v1/score_target, and the log-probabilities of prompts: the offline ones, whatever is asked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from openai import BadRequestError

from tests.server.fakes import output
from tests.server.live import MODEL, Live
from transduce import Logprob, SamplingParams, TargetScore
from transduce.server.protocol import score as protocol
from transduce.server.protocol.prompt_logprobs import prompt_logprobs

SOURCES = ["a cab", "hello", "the end"]
TARGETS = ["x", "transduce", "hello"]


def scored(served: Live, **asked: Any) -> dict[str, Any]:
    response = served.http.post("/v1/score_target", json=asked)
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize(
    ("sources", "targets"), [(SOURCES, TARGETS), ("hello", TARGETS), (SOURCES, "x"), ("x", "hello")]
)
def test_scores_are_the_offline_ones(sources: Any, targets: Any, ids: bool, text: Live) -> None:
    if ids:
        sources, targets = (text.offline.get_tokenizer()(each)["input_ids"] for each in (sources, targets))
    made = scored(text, source=sources, target=targets, model=MODEL)
    expected = text.offline.score_target(sources, targets)
    assert made["data"] == [
        {
            "index": index,
            "object": "target_score",
            "total_logprob": score.total,
            "mean_logprob": score.mean,
            "token_ids": score.token_ids,
            "token_logprobs": score.logprobs,
        }
        for index, score in enumerate(expected)
    ]
    assert (made["object"], made["model"]) == ("list", MODEL)
    details = made["usage"]["prompt_tokens_details"]
    assert details["decoder_tokens"] == sum(len(score.token_ids) + 1 for score in expected)
    assert details["encoder_tokens"] == sum(len(score.output.encoder_prompt_token_ids or ()) for score in expected)
    assert made["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize(
    ("asked", "param", "said"),
    [
        ({"source": "x"}, "target", "target is missing"),
        ({"source": "x", "target": 5}, "target", "give a text"),
        ({"source": "x", "target": []}, "target", "give a text"),
        ({"source": "x", "target": ""}, "target", "the target '' is empty"),
        ({"source": ["x", ""], "target": "x"}, "source", "is empty"),
        ({"source": "x", "target": "a" * 99}, "target", "the model has 64 positions"),
        ({"source": "a" * 99, "target": "x"}, "source", "truncate_prompt_tokens=64"),
        ({"source": "x", "target": "x", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "greater than"),
        ({"source": "x", "target": [[5], [999]]}, "target", "token id 999"),
        ({"source": ["x", "x"], "target": ["x", "x", "x"]}, None, "2 sources and 3 targets"),
        ({"source": "x", "target": "x", "temperature": 1}, "temperature", "is not supported"),
    ],
)
def test_what_cannot_be_scored_is_said(asked: dict[str, Any], param: str | None, said: str, text: Live) -> None:
    response = text.http.post("/v1/score_target", json=asked)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param), error
    assert said in error["message"]


def test_a_long_source_is_cut_as_its_refusal_says(text: Live) -> None:
    made = scored(text, source="a" * 99, target="x", truncate_prompt_tokens=64)
    details = made["usage"]["prompt_tokens_details"]
    assert (details["encoder_tokens"], details["truncated_tokens"]) == (64, 37)


def test_a_model_of_speech_scores_nothing(speech: Live) -> None:
    response = speech.http.post("/v1/score_target", json={"source": "x", "target": "x"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_served")
    assert "takes audio, not text" in response.json()["error"]["message"]


def told(tables: Sequence[Mapping[int, Logprob] | None] | None) -> list[dict[str, Any] | None]:
    """Tables as JSON has them."""
    fields = ("logprob", "rank", "decoded_token")
    return [
        None
        if table is None
        else {str(token): {name: getattr(each, name) for name in fields} for token, each in table.items()}
        for table in tables or ()
    ]


@pytest.mark.parametrize("most", [0, 5])
def test_prompt_logprobs_are_the_offline_ones(most: int, text: Live) -> None:
    asked: dict[str, Any] = {"prompt_logprobs": 2, "max_tokens": most}
    prompt = {"encoder_prompt": "hello", "decoder_prompt": "abx"}
    (wanted,) = text.offline.generate(prompt, SamplingParams(**asked))
    expected = told(wanted.prompt_logprobs)
    assert len(expected) == len(wanted.prompt_token_ids)
    extra = {"decoder_prompt": "abx", "prompt_logprobs": 2}
    made = text.openai.completions.create(model=MODEL, prompt="hello", max_tokens=most, extra_body=extra)
    (choice,) = made.choices
    assert choice.model_extra is not None
    assert choice.model_extra["prompt_logprobs"] == expected
    assert (choice.text, choice.finish_reason) == (wanted.outputs[0].text, wanted.outputs[0].finish_reason)
    messages: Any = [{"role": "user", "content": "hello"}]
    said = text.openai.chat.completions.create(model=MODEL, messages=messages, max_tokens=most, extra_body=extra)
    assert said.model_extra is not None
    assert said.model_extra["prompt_logprobs"] == expected
    plain = text.openai.completions.create(model=MODEL, prompt="hello", max_tokens=2)
    assert plain.choices[0].model_extra is not None
    assert plain.choices[0].model_extra["prompt_logprobs"] is None


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "prompt_logprobs": 0}, "max_tokens"),
        ({"max_tokens": 0, "prompt_logprobs": 0, "decoder_prompt": "x", "n": 2}, "n"),
        ({"max_tokens": 0, "prompt_logprobs": 0, "decoder_prompt": "x", "best_of": 2}, "best_of"),
    ],
)
def test_prompts_that_cannot_be_scored(asked: dict[str, Any], param: str, text: Live) -> None:
    with pytest.raises(BadRequestError) as refused:
        text.openai.completions.create(model=MODEL, prompt="hello", extra_body=asked)
    assert refused.value.param == param


def test_what_cannot_be_has_a_number_in_json() -> None:
    score = TargetScore([5, 6], [-0.5, -math.inf], output("", 0, finished=True))
    told = protocol.score(0, score)
    assert (told["token_logprobs"], told["total_logprob"], told["mean_logprob"]) == ([-0.5, -9999.0], -9999.5, -4999.75)
    scored = replace(score.output, prompt_logprobs=[None, {5: Logprob(-math.inf, None, "x")}])
    assert prompt_logprobs(scored) == [None, {5: {"logprob": -9999.0, "rank": None, "decoded_token": "x"}}]
