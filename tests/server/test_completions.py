"""/v1/completions by the official client: answers are the offline ones, whatever is asked."""

import json
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from tests.server.live import MODEL, Live
from transduce import BeamSearchParams, RequestOutput, SamplingParams

SOURCES = ["a cab", "hello", "transducers transduce", "x", "the end"]


def offline(served: Live, prompts: Any, params: Any = None) -> list[RequestOutput]:
    return served.offline.generate(prompts, params)


def test_prompts_in_every_form(text: Live) -> None:
    expected = [output.outputs[0].text for output in offline(text, SOURCES)]
    ids: list[list[int]] = [text.offline.get_tokenizer()(source)["input_ids"] for source in SOURCES]
    create = text.openai.completions.create
    for prompts in (SOURCES, ids):
        made = create(model=MODEL, prompt=prompts)
        assert [choice.text for choice in made.choices] == expected
        assert [choice.index for choice in made.choices] == [*range(len(SOURCES))]
        alone = [create(model=MODEL, prompt=prompt).choices[0].text for prompt in prompts]
        assert alone == expected
    assert len(set(expected)) > 1


def test_what_a_response_says_beside_the_text(text: Live) -> None:
    made = text.openai.completions.create(model=MODEL, prompt=["hello", "x"], max_tokens=5)
    outputs = offline(text, ["hello", "x"], SamplingParams(max_tokens=5))
    assert (made.object, made.model) == ("text_completion", MODEL)
    assert made.id.startswith("cmpl-")
    assert made.choices[0].finish_reason == outputs[0].outputs[0].finish_reason == "length"
    encoder = sum(len(output.encoder_prompt_token_ids or ()) for output in outputs)
    answers = sum(len(output.outputs[0].token_ids) for output in outputs)
    assert made.usage is not None
    assert made.usage.prompt_tokens == encoder + 2
    assert made.usage.completion_tokens == answers
    assert made.usage.total_tokens == encoder + 2 + answers
    details: Any = made.usage.prompt_tokens_details
    assert (details.encoder_tokens, details.decoder_tokens, details.truncated_tokens) == (encoder, 2, 0)


def test_samples_follow_their_prompt(text: Live) -> None:
    asked: dict[str, Any] = {"n": 3, "temperature": 1.0, "seed": 7, "max_tokens": 8}
    made = text.openai.completions.create(model=MODEL, prompt=SOURCES[:2], **asked)
    outputs = offline(text, SOURCES[:2], SamplingParams(**asked))
    assert [choice.text for choice in made.choices] == [each.text for output in outputs for each in output.outputs]
    assert [choice.index for choice in made.choices] == [*range(6)]
    assert len({choice.text for choice in made.choices}) > 3


SETTINGS: list[dict[str, Any]] = [
    {"min_tokens": 12, "max_tokens": 20},
    {"ignore_eos": True, "max_tokens": 30},
    {"stop_token_ids": [9, 12, 20]},
    {"stop": ["K", "S"], "include_stop_str_in_output": True},
    {"temperature": 0.9, "top_k": 3, "seed": 1},
    {"temperature": 0.9, "top_p": 0.5, "seed": 2},
    {"temperature": 0.9, "min_p": 0.2, "seed": 3},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"repetition_penalty": 1.7},
    {"logit_bias": {"9": 100, "10": -100}, "max_tokens": 4},
    {"allowed_token_ids": [2, 5, 6, 7]},
    {"bad_words": ["S", [12]], "max_tokens": 9},
    {"no_repeat_ngram_size": 1, "encoder_no_repeat_ngram_size": 1, "max_tokens": 9},
    {"forced_bos_token_id": 9, "forced_eos_token_id": [2], "max_tokens": 5},
    {"suppress_tokens": [44], "begin_suppress_tokens": [41]},
    {"truncate_prompt_tokens": 4},
    {"skip_special_tokens": False, "logit_bias": {"0": 100}, "max_tokens": 3},
]


@pytest.mark.parametrize("asked", SETTINGS, ids="-".join)
def test_parameters_are_the_offline_ones(asked: dict[str, Any], text: Live) -> None:
    made = text.openai.completions.create(model=MODEL, prompt=SOURCES, extra_body=asked)
    bias = {int(token): value for token, value in asked.get("logit_bias", {}).items()}
    outputs = offline(text, SOURCES, SamplingParams(**asked | ({"logit_bias": bias} if bias else {})))
    answers = [output.outputs[0] for output in outputs]
    assert [choice.text for choice in made.choices] == [answer.text for answer in answers]
    assert [choice.finish_reason for choice in made.choices] == [answer.finish_reason for answer in answers]
    reasons = [choice.model_extra["stop_reason"] for choice in made.choices if choice.model_extra is not None]
    assert reasons == [answer.stop_reason for answer in answers]
    plain = [output.outputs[0].text for output in offline(text, SOURCES)]
    assert [answer.text for answer in answers] != plain, "the setting should change something"


def test_truncated_tokens_are_counted(text: Live) -> None:
    made = text.openai.completions.create(model=MODEL, prompt="hello", extra_body={"truncate_prompt_tokens": 4})
    assert made.usage is not None
    details: Any = made.usage.prompt_tokens_details
    assert (details.encoder_tokens, details.truncated_tokens) == (4, 3)


@pytest.mark.parametrize(
    ("asked", "params"),
    [
        ({"use_beam_search": True, "n": 3}, {"beam_width": 3, "num_return_sequences": 3}),
        (
            {"beam_width": 4, "n": 2, "early_stopping": "never"},
            {"beam_width": 4, "num_return_sequences": 2, "early_stopping": "never"},
        ),
        ({"beam_width": 4, "length_penalty": -1, "echo": True}, {"beam_width": 4, "length_penalty": -1}),
    ],
)
def test_beams(asked: dict[str, Any], params: dict[str, Any], text: Live) -> None:
    made = text.openai.completions.create(model=MODEL, prompt=SOURCES, max_tokens=9, extra_body=asked)
    outputs = offline(text, SOURCES, BeamSearchParams(max_tokens=9, **params))
    echoes = [source if "echo" in asked else "" for source in SOURCES]
    expected = [echo + answer.text for echo, output in zip(echoes, outputs, strict=True) for answer in output.outputs]
    assert [choice.text for choice in made.choices] == expected
    assert [choice.index for choice in made.choices] == [*range(len(expected))]


def test_streamed_beams(text: Live) -> None:
    asked = {"beam_width": 3}
    chunks = text.openai.completions.create(model=MODEL, prompt="hello", n=2, stream=True, extra_body=asked)
    texts = ["", ""]
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    (output,) = offline(text, "hello", BeamSearchParams(beam_width=3, num_return_sequences=2))
    assert texts == [answer.text for answer in output.outputs]


@pytest.mark.parametrize("asked", [{"beam_width": 1}, {"use_beam_search": True}])
def test_one_beam_is_greedy(asked: dict[str, Any], text: Live) -> None:
    made = text.openai.completions.create(model=MODEL, prompt="hello", max_tokens=9, extra_body=asked)
    (output,) = offline(text, "hello", BeamSearchParams(beam_width=1, max_tokens=9))
    assert made.choices[0].text == output.outputs[0].text


def test_a_decoder_prompt_is_continued(text: Live) -> None:
    (whole,) = offline(text, "hello")
    start, rest = whole.outputs[0].token_ids[:3], whole.outputs[0].token_ids[3:]
    asked = {"decoder_prompt": start, "logprobs": 0, "return_tokens_as_token_ids": True}
    made = text.openai.completions.create(model=MODEL, prompt="hello", extra_body=asked)
    logprobs = made.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == [f"token_id:{token}" for token in rest]
    assert made.usage is not None
    assert made.usage.prompt_tokens_details is not None
    assert made.usage.prompt_tokens_details.model_extra == {
        "encoder_tokens": 7,
        "decoder_tokens": 4,
        "truncated_tokens": 0,
    }


def test_echo_puts_the_prompt_in_front(text: Live) -> None:
    ids: list[int] = text.offline.get_tokenizer()("hello")["input_ids"]
    (output,) = offline(text, "hello")
    for prompt in ("hello", ids):
        made = text.openai.completions.create(model=MODEL, prompt=prompt, echo=True)
        assert made.choices[0].text == "hello" + output.outputs[0].text


def test_echo_puts_the_decoder_s_prompt_behind_the_encoder_s(text: Live) -> None:
    ids: list[int] = text.offline.get_tokenizer()("cab", add_special_tokens=False)["input_ids"]
    for start in ("cab", ids):
        asked = {"decoder_prompt": start, "max_tokens": 5}
        create = text.openai.completions.create
        plain = create(model=MODEL, prompt="hello", extra_body=asked).choices[0].text
        assert create(model=MODEL, prompt="hello", echo=True, extra_body=asked).choices[0].text == f"hellocab{plain}"


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": "a" * 99}, "prompt"),
        ({"n": 128, "temperature": 1.0}, "n"),
        ({"best_of": 128, "temperature": 1.0}, "best_of"),
        ({"use_beam_search": True, "n": 128}, "n"),
        ({"n": 3, "beam_width": 2}, "n"),
        ({"length_penalty": 2}, "length_penalty"),
        ({"decoder_prompt": [5] * 99}, "decoder_prompt"),
        ({"decoder_prompt": [999]}, "decoder_prompt"),
        ({"logit_bias": {"999": 1}}, "logit_bias"),
        ({"stop_token_ids": [999]}, "stop_token_ids"),
        ({"top_k": 5}, "top_k"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "what"}}}}, "response_format"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_engine_refuses_names_the_field(asked: dict[str, Any], param: str, text: Live) -> None:
    for stream in (False, True):
        answer = text.http.post("/v1/completions", json={"prompt": "hello", "stream": stream, **asked})
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert (error["param"], "guided_json" in error["message"]) == (param, False), error


def test_logprobs_are_the_offline_ones(text: Live) -> None:
    asked: dict[str, Any] = {"logprobs": 2, "n": 2, "temperature": 1.0, "seed": 4, "max_tokens": 6}
    made = text.openai.completions.create(model=MODEL, prompt="hello", **asked)
    (output,) = offline(text, "hello", SamplingParams(**asked))
    for choice, answer in zip(made.choices, output.outputs, strict=True):
        assert answer.logprobs is not None
        assert choice.logprobs is not None
        tables = [*zip(answer.token_ids, answer.logprobs, strict=True)]
        assert choice.logprobs.token_logprobs == [table[token].logprob for token, table in tables]
        tokens = [str(table[token].decoded_token) for token, table in tables]
        assert choice.logprobs.tokens == tokens
        assert choice.logprobs.text_offset == [len("".join(tokens[:at])) for at in range(len(tokens))]
        likeliest = [{each.decoded_token: each.logprob for each in table.values()} for _, table in tables]
        assert choice.logprobs.top_logprobs == likeliest


def test_one_bad_prompt_is_the_request_s_error(text: Live) -> None:
    for prompts, said in (
        (["hello", ""], "is empty"),
        (["hello", "a" * 99], "the model takes 64"),
        ([[5, 2], [5, 999]], "token id 999"),
    ):
        with pytest.raises(BadRequestError, match=said):
            text.openai.completions.create(model=MODEL, prompt=prompts)


def test_what_can_never_fit_is_refused(text: Live) -> None:
    with pytest.raises(BadRequestError, match="hypotheses run at once"):
        text.openai.completions.create(model=MODEL, prompt="hello", n=128, temperature=1.0)


@pytest.mark.parametrize(
    "asked",
    [
        {"seed": 2**64 - 1, "temperature": 1.0},
        {"top_k": 2**31 - 1, "temperature": 1.0},
        {"max_tokens": 10**300},
        {"min_tokens": 10**300},
        {"truncate_prompt_tokens": 10**300},
        {"logprobs": 20},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_the_largest_numbers_are_numbers(asked: dict[str, Any], text: Live) -> None:
    response = text.http.post("/v1/completions", json={"prompt": "hello", **asked})
    assert response.status_code == 200, response.text


def test_huge_ids_are_refused(text: Live) -> None:
    for asked in (
        {"prompt": [10**300]},
        {"prompt": [10**300], "echo": True},
        {"stop_token_ids": [10**300]},
        {"allowed_token_ids": [-(10**300)]},
        {"logit_bias": {"1" + "0" * 300: 1}},
        {"bad_words": [[10**300]]},
        {"decoder_prompt": [10**300]},
    ):
        response = text.http.post("/v1/completions", json={"prompt": "hello", **asked})
        assert response.status_code == 400, response.text


def test_lone_surrogates_are_refused(text: Live) -> None:
    for field in ("prompt", "decoder_prompt", "model", "bad_words", "stop"):
        value: Any = ["\ud800"] if field == "bad_words" else "\ud800"
        content = json.dumps({"prompt": "hello", field: value})
        response = text.http.post("/v1/completions", content=content, headers={"content-type": "application/json"})
        assert response.status_code in ({200} if field == "stop" else {400, 404}), (field, response.text)


def test_another_model_is_not_here(text: Live) -> None:
    with pytest.raises(NotFoundError) as refused:
        text.openai.completions.create(model="gpt", prompt="hello")
    assert refused.value.code == "model_not_found"
    assert text.http.post("/v1/completions", json={"prompt": "hello"}).status_code == 200


def test_a_model_of_speech_says_what_it_takes(speech: Live) -> None:
    with pytest.raises(NotFoundError, match="takes audio, not text"):
        speech.openai.completions.create(model=MODEL, prompt="hello")
    with pytest.raises(NotFoundError, match="takes audio, not text"):
        speech.openai.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}])
