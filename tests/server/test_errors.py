"""Every exception as a client sees it: OpenAI's error object, whatever was sent."""

import json
import logging
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException

from transduce.core.params import BeamSearchParams, SamplingParams
from transduce.errors import (
    CapacityError,
    ConfigError,
    EngineDeadError,
    EngineError,
    MediaError,
    RequestError,
)
from transduce.frontend.frontend import Params
from transduce.server.errors import (
    Draining,
    FieldError,
    NotServed,
    Overloaded,
    TimedOut,
    TooLarge,
    TooSlow,
    Unauthorized,
    Unsupported,
    handlers,
    problem,
)
from transduce.server.protocol.chat import ChatRequest
from transduce.server.protocol.completions import CompletionRequest

CASES = [
    (RequestError("no"), 400, "invalid_request_error", "invalid_request"),
    (MediaError("no"), 400, "invalid_request_error", "unreadable_media"),
    (CapacityError("no"), 400, "invalid_request_error", "too_long"),
    (Unsupported("no", "suffix"), 400, "invalid_request_error", "unsupported"),
    (Unauthorized("no"), 401, "authentication_error", "invalid_api_key"),
    (NotServed("no"), 404, "invalid_request_error", "not_served"),
    (NotServed("no", "model_not_found", "model"), 404, "invalid_request_error", "model_not_found"),
    (TooLarge("no"), 413, "invalid_request_error", "too_large"),
    (Overloaded("no", retry_after=7), 429, "rate_limit_error", "overloaded"),
    (EngineError("no"), 500, "server_error", "engine_error"),
    (ConfigError("no"), 500, "server_error", "internal_error"),
    (Draining("no"), 503, "server_error", "draining"),
    (EngineDeadError("no"), 503, "server_error", "engine_unavailable"),
    (TimedOut("no"), 504, "server_error", "timed_out"),
    (TooSlow("no"), 408, "invalid_request_error", "too_slow"),
    (FieldError("no", "n", CapacityError), 400, "invalid_request_error", "too_long"),
    (HTTPException(400, "no"), 400, "invalid_request_error", "invalid_request"),
]


@pytest.mark.parametrize(("error", "status", "kind", "code"), CASES, ids=lambda value: type(value).__name__)
def test_statuses_and_codes(error: Exception, status: int, kind: str, code: str | None) -> None:
    told = problem(error)
    assert told.status == status
    assert told.body["error"] == {"message": "no", "type": kind, "param": told.param, "code": code}


def test_what_clients_look_for_is_in_headers() -> None:
    assert problem(Overloaded("no", retry_after=7)).response().headers["retry-after"] == "7"
    assert problem(Unauthorized("no")).response().headers["www-authenticate"] == "Bearer"
    assert problem(HTTPException(405, "no", {"Allow": "POST"})).response().headers["allow"] == "POST"


def test_the_field_at_fault_is_named() -> None:
    assert problem(Unsupported("no", "suffix")).param == "suffix"
    assert problem(NotServed("no", "model_not_found", "model")).param == "model"


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (405, "method_not_allowed")])
def test_where_no_route_fits_the_way_out_is_said(status: int, code: str) -> None:
    error = problem(HTTPException(status)).body["error"]
    assert error["code"] == code
    assert ";" in error["message"]


def test_a_message_is_bounded() -> None:
    assert len(problem(RequestError("x" * 10**6)).message) < 10_000


def test_what_nobody_raised_on_purpose_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        told = problem(KeyError("a secret"))
    assert told.status == 500
    assert "secret" not in json.dumps(told.body)
    assert "a secret" in caplog.text


def test_a_message_that_is_no_utf8_is_sent() -> None:
    sent = json.loads(bytes(problem(RequestError("\ud800")).response().body))
    assert sent["error"]["message"] == "\ud800"


@pytest.fixture(scope="module")
def client() -> TestClient:
    """Routes that take what the real ones take, and answer what they were asked."""
    app = FastAPI(exception_handlers=handlers())

    @app.post("/completions")
    async def complete(body: CompletionRequest) -> str:
        with body.blamed():
            return repr((body.sources, body.params()))

    @app.post("/chat")
    async def chat(body: ChatRequest) -> str:
        with body.blamed():
            return repr(body.params())

    return TestClient(app)


def refusal(client: TestClient, path: str, **content: Any) -> dict[str, Any]:
    response = client.post(path, **content)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["message"]
    assert error["type"] == "invalid_request_error"
    assert error["code"] in {"invalid_request", "unsupported"}
    return error


BODIES = [
    (b"", "no JSON object"),
    (b"{", "the body is no JSON"),
    (b"5", "no JSON object"),
    (b"null", "no JSON object"),
    (b"{}", "prompt is missing"),
    (b"\xff\xfe", "no JSON"),
    (b'{"prompt": "\xff"}', "cannot be read"),
    (b"[" * 100_000, "cannot be read"),
    (b'{"prompt": "x", "temperature": ' + b"[" * 900 + b"]" * 900 + b"}", "temperature="),
    (b'{"prompt": "x", "\\ud800": 1}', ""),
    (b'{"prompt": "x", "temperature": NaN}', "finite"),
    (b'{"prompt": "x", "temperature": 1e999}', "finite"),
    (b'{"prompt": "x", "temperature": 1' + b"0" * 400 + b"}", "temperature="),
    (b'{"prompt": "x", "max_tokens": 1' + b"0" * 5000 + b"}", ""),
    (b'{"prompt": "x", "seed": 1' + b"0" * 400 + b"}", "seed="),
]


@pytest.mark.parametrize(("body", "said"), BODIES, ids=range(len(BODIES)))
def test_a_body_that_is_none_is_refused(body: bytes, said: str, client: TestClient) -> None:
    error = refusal(client, "/completions", content=body, headers={"content-type": "application/json"})
    assert said in error["message"]


def test_another_content_type_is_refused(client: TestClient) -> None:
    assert "application/json" in refusal(client, "/completions", content=b'{"prompt": "x"}')["message"]
    refusal(client, "/completions", data={"prompt": "x"})


WRONG: dict[str, list[Any]] = {
    "prompt": [{"text": "x"}, 5, [], [1, "x"], [["x"]], [1.5], True],
    "n": [0, 129, "2", 1.5, True],
    "max_tokens": [0, -1, "9"],
    "temperature": [-1, "0", 1e5],
    "top_p": [0, 1.1],
    "top_k": [-2, 2**31],
    "min_p": [-0.1],
    "seed": [-1, 2**64],
    "logprobs": [-1, 21, True],
    "presence_penalty": [3],
    "repetition_penalty": [0],
    "stop": [5, [5]],
    "stop_token_ids": [["x"]],
    "logit_bias": [{"x": 1}, {"5": "x"}, [5]],
    "bad_words": ["x", [5]],
    "suppress_tokens": [5, [-1]],
    "no_repeat_ngram_size": [-1, 2**31],
    "encoder_no_repeat_ngram_size": ["2"],
    "forced_bos_token_id": [-2, [0]],
    "forced_eos_token_id": [-2, "0", [-1]],
    "renormalize_logits": [1],
    "prefix_allowed_tokens_fn": ["f"],
    "stream": ["yes", 1],
    "stream_options": [{"include_usage": "yes"}, {"continuous_usage_stats": True}],
    "decoder_prompt": [{"x": 1}, 5],
    "suffix": ["x"],
    "best_of": [0, "2"],
    "beam_width": [0, "4"],
    "length_penalty": [11, "1"],
    "early_stopping": ["always", 1],
    "patience": [0, 11, "1"],
    "prompt_logprobs": [-1, 21, True],
    "response_format": [
        {},
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_object", "json_schema": {"schema": {}}},
    ],
    "guided_json": [5, ["x"]],
    "guided_regex": [5],
    "guided_choice": ["x", [5]],
    "guided_grammar": [["x"]],
    "structured_outputs": [{"regex": "x"}],
    "priority": [2**31, 0.5],
    "num_beams": [4],
    "num_return_sequences": [2],
    "max_new_tokens": [9],
    "no_such_field": [0, "", [], False],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_a_field_that_cannot_be_followed_is_named(field: str, value: object, client: TestClient) -> None:
    error = refusal(client, "/completions", json={"prompt": "x", field: value})
    assert error["param"] == field
    assert field in error["message"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"stream_options": {}}, "stream_options without stream"),
        ({"echo": True, "logprobs": 1}, "echo with logprobs"),
        ({"min_tokens": 5, "max_tokens": 3}, "min_tokens=5"),
        ({"logit_bias": {"5": 200}}, "logit_bias"),
        ({"stop": ""}, "stop=''"),
        ({"guided_json": "{"}, "guided_json is no JSON"),
        ({"guided_json": "[]"}, "give a JSON schema, an object"),
        ({"guided_choice": []}, "guided_choice=[]"),
        ({"length_penalty": 2, "temperature": 0.5}, "length_penalty is for beams, not for samples"),
        ({"early_stopping": True, "n": 2}, "early_stopping is for beams, not for samples"),
        ({"use_beam_search": False, "beam_width": 4}, "use_beam_search=False beside beam_width=4"),
        ({"num_beams": 4}, "give beam_width"),
        ({"num_return_sequences": 2}, "give n"),
        ({"response_format": {}}, "type is missing in response_format"),
        ({"response_format": {"type": "json_schema"}}, 'needs a schema: give json_schema: {"schema": …} too'),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "schema is missing in response_format"),
    ],
)
def test_what_contradicts_is_said(fields: dict[str, Any], said: str, client: TestClient) -> None:
    error = refusal(client, "/completions", json={"prompt": "x", **fields})
    assert said in error["message"]
    assert error["param"] in fields


@pytest.mark.parametrize(
    ("asked", "params"),
    [
        ({}, SamplingParams()),
        ({"n": 1}, BeamSearchParams(num_return_sequences=1)),
        ({"n": 1, "temperature": 0.5}, SamplingParams(n=1, temperature=0.5)),
        ({"n": 2}, SamplingParams(n=2)),
        ({"n": 2, "beam_width": 3}, BeamSearchParams(beam_width=3, num_return_sequences=2)),
        ({"use_beam_search": True}, BeamSearchParams()),
        ({"use_beam_search": True, "n": 3}, BeamSearchParams(beam_width=3, num_return_sequences=3)),
        ({"use_beam_search": False}, BeamSearchParams(beam_width=1)),
        ({"use_beam_search": False, "beam_width": 1}, BeamSearchParams(beam_width=1)),
        ({"use_beam_search": False, "n": 2}, SamplingParams(n=2)),
        ({"use_beam_search": False, "temperature": 0.5}, SamplingParams(temperature=0.5)),
    ],
)
def test_when_there_are_beams_and_when_samples(asked: dict[str, Any], params: Params) -> None:
    assert CompletionRequest.model_validate({"prompt": "x", **asked}).params() == params


def test_newer_names_are_explained(client: TestClient) -> None:
    error = refusal(client, "/completions", json={"prompt": "x", "structured_outputs": {"regex": "a"}})
    assert "guided_regex" in error["message"]


def test_a_response_format_is_named_as_such(client: TestClient) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"a": "x" * 50_000}}}
    error = refusal(client, "/completions", json={"prompt": "x", "response_format": form})
    assert error["param"] == "response_format"
    assert error["message"].startswith("response_format has 50")
    both = refusal(client, "/completions", json={"prompt": "x", "response_format": form, "guided_json": {}})
    assert "guided_json and response_format" in both["message"]


def test_nulls_and_defaults_and_what_changes_no_answer_are_accepted(client: TestClient) -> None:
    plain = client.post("/completions", json={"prompt": "x"})
    nothing = dict.fromkeys([*WRONG, "user", "best_of", "echo"]) | {
        "prompt": "x",
        "user": "me",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "suffix": "",
        "best_of": 1,
        "response_format": {"type": "text"},
        "priority": 0,
    }
    assert client.post("/completions", json=nothing).text == plain.text
    chat = {"messages": [{"role": "user", "content": "x"}]}
    neutral: dict[str, Any] = {
        "tools": [],
        "tool_choice": "none",
        "n": None,
        "logprobs": False,
        "parallel_tool_calls": True,
    }
    assert client.post("/chat", json=chat | neutral).text == client.post("/chat", json=chat).text


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        (5, "messages"),
        ([{"role": "user"}], "messages"),
        ([{"role": "user", "content": 5}], "messages"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x", "detail": "no"}}]}], "messages"),
        ([{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "x"}}]}], "messages"),
        ([{"role": "user", "content": "x", "tool_calls": []}], "messages"),
    ],
)
def test_messages_that_are_no_text_are_refused(messages: object, field: str, client: TestClient) -> None:
    assert refusal(client, "/chat", json={"messages": messages})["param"] == field


def test_half_a_character_is_said_to_be_one(client: TestClient) -> None:
    content = b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
    error = refusal(client, "/chat", content=content, headers={"content-type": "application/json"})
    assert "lone surrogate" in error["message"]
    assert error["param"] == "messages"


def test_chat_fields_that_contradict(client: TestClient) -> None:
    chat = {"messages": [{"role": "user", "content": "x"}]}
    assert "without logprobs" in refusal(client, "/chat", json={**chat, "top_logprobs": 2})["message"]
    both = {"max_tokens": 1, "max_completion_tokens": 2}
    assert "differ" in refusal(client, "/chat", json={**chat, **both})["message"]
    error = refusal(client, "/chat", json={**chat, "max_completion_tokens": 2, "min_tokens": 3})
    assert "max_completion_tokens=2" in error["message"]
