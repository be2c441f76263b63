"""Structured output over HTTP: by the guided_* fields and by response_format, and what is said of a bad one."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from openai import APIError, BadRequestError, OpenAI

from tests.folders import byte_folder
from tests.server.live import MODEL, Live, live

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 60}
SCHEMA = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 0, "maximum": 99}, "kind": {"enum": ["é", "b c"]}},
    "required": ["size", "kind"],
    "additionalProperties": False,
}
PROMPTS = ["hello", "x", "the end"]


@pytest.fixture(scope="module")
def octets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(byte_folder(tmp_path_factory.mktemp("bytes"), GENERATION)) as served:
        yield served


def texts(openai: OpenAI, **fields: Any) -> list[str]:
    return [choice.text for choice in openai.completions.create(model=MODEL, prompt=PROMPTS, extra_body=fields).choices]


MORE: list[dict[str, Any]] = [{}, {"n": 2, "temperature": 1.5, "seed": 3}, {"use_beam_search": True, "beam_width": 3}]


@pytest.mark.parametrize("more", MORE, ids=["greedy", "sampled", "beams"])
def test_completions_have_the_structure(more: dict[str, Any], octets: Live) -> None:
    for fields, pattern in (
        ({"guided_regex": "[a-f]{3} ?"}, "[a-f]{3} ?"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"guided_grammar": 'start: "a" ("b" | "c")+'}, "a[bc]+"),
    ):
        assert all(re.fullmatch(pattern, text) for text in texts(octets.openai, max_tokens=20, **fields, **more))
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        for text in texts(octets.openai, guided_json=schema, **more):
            jsonschema_rs.validate(SCHEMA, json.loads(text))


def test_chats_have_the_structure(octets: Live) -> None:
    create = octets.openai.chat.completions.create
    messages: list[Any] = [{"role": "user", "content": "hello"}]
    asked: Any = {"type": "json_schema", "json_schema": {"name": "size", "schema": SCHEMA, "strict": True}}
    made = create(model=MODEL, messages=messages, response_format=asked)
    jsonschema_rs.validate(SCHEMA, json.loads(str(made.choices[0].message.content)))
    plain = create(model=MODEL, messages=messages, max_tokens=9).choices[0].message.content
    text = create(model=MODEL, messages=messages, max_tokens=9, response_format={"type": "text"})
    assert text.choices[0].message.content == plain
    started = create(model=MODEL, messages=messages, max_tokens=9, response_format={"type": "json_object"})
    assert re.match(r'\{ ?[}"]', str(started.choices[0].message.content))


def test_a_stream_adds_up_to_the_structure(octets: Live) -> None:
    chunks = octets.openai.completions.create(
        model=MODEL, prompt="hello", stream=True, extra_body={"guided_json": SCHEMA}
    )
    jsonschema_rs.validate(SCHEMA, json.loads("".join(chunk.choices[0].text for chunk in chunks)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"guided_regex": "("}, "unclosed group"),
        ({"guided_json": {"type": "what"}}, "Invalid type: what"),
        ({"guided_grammar": "start: foo"}, 'unknown name: "foo"'),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex and guided_choice"),
        ({"guided_json": {}, "response_format": {"type": "json_object"}}, "guided_json and response_format"),
        ({"guided_choice": ["\ud800"]}, "surrogate"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos"),
        ({"guided_choice": ["a"], "allowed_token_ids": [2]}, "rules (allowed_tokens, choices) forbid every one"),
    ],
)
def test_a_bad_structure_is_said_and_costs_nobody_else(fields: dict[str, Any], said: str, octets: Live) -> None:
    response = octets.http.post(
        "/v1/completions",
        content=json.dumps({"model": MODEL, "prompt": "x", **fields}),
        headers={"content-type": "application/json"},
    )
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]
    assert texts(octets.openai, guided_choice=["yes"]) == ["yes"] * 3


def test_a_stream_says_whose_fault_it_is_that_no_token_can_follow(octets: Live) -> None:
    fields = {"guided_choice": ["a"], "allowed_token_ids": [2]}
    with pytest.raises(APIError, match="no token can follow") as raised:
        list(octets.openai.completions.create(model=MODEL, prompt="x", stream=True, extra_body=fields))
    assert raised.value.type == "invalid_request_error"


def test_missing_characters_are_named(text: Live) -> None:
    with pytest.raises(BadRequestError, match=r"guided_json needs .*'\{'"):
        texts(text.openai, guided_json=SCHEMA)
    assert set(texts(text.openai, guided_choice=["a cab", "no"])) <= {"a cab", "no"}
