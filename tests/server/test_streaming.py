"""Streams: joined they are the whole answer, they end as they should, and errors find their way into them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import APIError, OpenAI

from tests.server.asgi import acall, call, request
from tests.server.canned import serving
from tests.server.fakes import MODEL as FAKE
from tests.server.fakes import FakeLLM, app, output
from tests.server.live import MODEL, Live
from transduce import CompletionOutput, EngineError, Logprob, RequestOutput
from transduce.errors import EngineDeadError
from transduce.server.answers import Answers

SOURCES = ["a cab", "hello", "transducers transduce", "x", "the end"]
MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]
SAMPLED: dict[str, Any] = {"n": 3, "temperature": 1.0, "seed": 7, "max_tokens": 20}
ASKED: list[dict[str, Any]] = [
    {},
    SAMPLED,
    {"stop": ["SN", "kA", "RR"]},
    {"stop": ["S"], "include_stop_str_in_output": True},
    SAMPLED | {"stop": ["S"]},
    {"logprobs": 2},
    SAMPLED | {"logprobs": 0, "stop": "SS"},
    {"echo": True},
]


@pytest.mark.parametrize("asked", ASKED, ids="-".join)
def test_completions_joined_are_the_whole(asked: dict[str, Any], text: Live) -> None:
    whole = text.openai.completions.create(model=MODEL, prompt=SOURCES, extra_body=asked)
    joined: list[dict[str, Any]] = [
        {"text": "", "tokens": [], "values": [], "offsets": [], "ends": []} for _ in whole.choices
    ]
    for chunk in text.openai.completions.create(model=MODEL, prompt=SOURCES, stream=True, extra_body=asked):
        assert (chunk.object, chunk.model, chunk.usage) == ("text_completion", MODEL, None)
        (choice,) = chunk.choices
        into = joined[choice.index]
        assert not into["ends"], "nothing follows the end"
        into["text"] += choice.text
        if choice.finish_reason is not None:
            into["ends"].append((choice.finish_reason, choice.model_extra and choice.model_extra["stop_reason"]))
        if choice.logprobs is not None:
            into["tokens"] += choice.logprobs.tokens
            into["values"] += choice.logprobs.token_logprobs
            into["offsets"] += choice.logprobs.text_offset
    for choice, parts in zip(whole.choices, joined, strict=True):
        assert parts["text"] == choice.text
        assert parts["ends"] == [(choice.finish_reason, choice.model_extra and choice.model_extra["stop_reason"])]
        if choice.logprobs is not None:
            assert parts["tokens"] == choice.logprobs.tokens
            assert parts["values"] == choice.logprobs.token_logprobs
            assert parts["offsets"] == choice.logprobs.text_offset


@pytest.mark.parametrize("logprobs", [False, True])
def test_chats_joined_are_the_whole(logprobs: bool, text: Live) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "logprobs": logprobs, **SAMPLED}
    whole = text.openai.chat.completions.create(**asked)
    texts = [""] * 3
    tokens: list[list[Any]] = [[] for _ in range(3)]
    roles, ends = [], []
    for chunk in text.openai.chat.completions.create(**asked, stream=True):
        assert chunk.object == "chat.completion.chunk"
        (choice,) = chunk.choices
        if choice.delta.role is not None:
            roles.append((choice.index, choice.delta.role))
        texts[choice.index] += choice.delta.content or ""
        if choice.logprobs is not None:
            tokens[choice.index] += choice.logprobs.content or []
        if choice.finish_reason is not None:
            ends.append((choice.index, choice.finish_reason))
    assert texts == [choice.message.content for choice in whole.choices]
    assert tokens == [(choice.logprobs and choice.logprobs.content) or [] for choice in whole.choices]
    assert sorted(roles) == [(index, "assistant") for index in range(3)]
    assert sorted(ends) == [(choice.index, choice.finish_reason) for choice in whole.choices]


def test_usage_comes_last_and_only_if_asked(text: Live) -> None:
    whole = text.openai.completions.create(model=MODEL, prompt=SOURCES)
    options: Any = {"stream_options": {"include_usage": True}, "stream": True}
    *chunks, last = text.openai.completions.create(model=MODEL, prompt=SOURCES, **options)
    assert {chunk.usage for chunk in chunks} == {None}
    assert (last.choices, last.usage) == ([], whole.usage)
    *_, last_chat = text.openai.chat.completions.create(model=MODEL, messages=MESSAGES, **options)
    chat = text.openai.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert (last_chat.choices, last_chat.usage) == ([], chat.usage)


def test_the_form_of_a_stream(text: Live) -> None:
    body = {"prompt": "hello", "stream": True}
    response = text.http.post("/v1/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    *events, last, rest = response.text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert len(chunks) > 2
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    assert chunks[0]["id"] == f"cmpl-{response.headers['x-request-id']}"
    assert not any("usage" in chunk for chunk in chunks)


class Scripted(FakeLLM):
    """Gives each prompt, in the order they come, its own outputs, and then raises its error if it has one."""

    def __init__(self, *scripts: Sequence[RequestOutput | Exception]) -> None:
        super().__init__()
        self.scripts = iter(scripts)

    async def generate(self, prompt: object, params: object, **given: Any) -> AsyncGenerator[RequestOutput, None]:
        try:
            for each in next(self.scripts):
                if isinstance(each, Exception):
                    raise each
                yield each
            await self.go.wait()
        finally:
            self.left += 1

    def get_tokenizer(self) -> None:
        return None


BEGUN, DONE = output("a", 1, finished=False), output("ab", 2, finished=True)
PATHS: dict[str, dict[str, Any]] = {"/v1/completions": {"prompt": "x"}, "/v1/chat/completions": {"messages": MESSAGES}}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("error", "status"), [(EngineError("lost"), 500), (EngineDeadError("gone"), 503)])
def test_an_error_before_anything_is_a_status(path: str, error: Exception, status: int) -> None:
    for stream in (False, True):
        refused = call(app(Scripted([error])), "POST", path, PATHS[path] | {"stream": stream})
        assert refused.status == status
        assert refused.json["error"]["message"] == str(error)


@pytest.mark.parametrize("path", PATHS)
def test_an_error_in_the_middle_ends_the_stream(path: str) -> None:
    made = call(app(Scripted([BEGUN, EngineDeadError("gone")])), "POST", path, PATHS[path] | {"stream": True})
    assert made.status == 200
    *chunks, last, rest = made.body.decode().split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"] == {
        "message": "gone",
        "type": "server_error",
        "param": None,
        "code": "engine_unavailable",
    }
    assert (bool(chunks), rest) == (True, "")
    assert "[DONE]" not in made.body.decode()


def test_the_client_raises_what_comes_in_the_middle() -> None:
    served = app(Scripted([BEGUN, EngineDeadError("gone")]))
    with serving(served) as address, OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        chunks = client.completions.create(model=FAKE, prompt="x", stream=True)
        assert next(chunks).choices[0].text == "a"
        with pytest.raises(APIError, match="gone"):
            next(chunks)


def test_what_nobody_raised_on_purpose_is_not_told_in_the_middle(caplog: pytest.LogCaptureFixture) -> None:
    made = call(app(Scripted([BEGUN, KeyError("secret")])), "POST", "/v1/completions", {"prompt": "x", "stream": True})
    assert b"internal error" in made.body
    assert b"secret" not in made.body
    assert "secret" in caplog.text


@pytest.mark.parametrize("stream", [False, True])
def test_one_failure_ends_the_other_prompts(stream: bool) -> None:
    async def run() -> tuple[int, bytes, int]:
        llm = Scripted([BEGUN], [BEGUN, EngineError("lost")], [BEGUN])
        llm.go.clear()  # the others never end by themselves
        made = await acall(app(llm), "POST", "/v1/completions", {"prompt": ["a", "b", "c"], "stream": stream})
        return made.status, made.body, llm.left

    status, body, left = asyncio.run(run())
    assert status == (200 if stream else 500)
    assert b"lost" in body
    assert left == 3


@pytest.mark.parametrize("prompts", ["a", ["a", "b"]])
def test_a_client_that_leaves_ends_its_prompts(prompts: object) -> None:
    async def run() -> tuple[int, bool]:
        llm = Scripted([BEGUN], [BEGUN])
        llm.go.clear()
        client, headers = request(app(llm), {"prompt": prompts, "stream": True})
        running = asyncio.create_task(client.run("POST", "/v1/completions", headers))
        await client.started.wait()
        client.leave()
        await running
        return llm.left, client.complete

    assert asyncio.run(run()) == (len(prompts), False)  # type: ignore[arg-type]  # "a" is one, too


LETTERS = "abcdefgh"
STEPS = 5


@st.composite
def scripts(draw: st.DrawFn) -> list[list[RequestOutput]]:
    """What two prompts with two samples each say, growing by as much as each step brings."""
    logprobs = draw(st.booleans())
    growth = st.lists(st.integers(0, len(LETTERS)), min_size=STEPS, max_size=STEPS).map(sorted)
    grown = [[(draw(growth), draw(st.integers(0, STEPS - 1))) for _ in range(2)] for _ in range(2)]
    return [
        [
            replace(DONE, outputs=[_answer(index, each, step, logprobs) for index, each in enumerate(samples)])
            for step in range(STEPS)
        ]
        for samples in grown
    ]


def _answer(index: int, grown: tuple[list[int], int], step: int, logprobs: bool) -> CompletionOutput:
    """A sample of which each step has so many tokens, until it ends. Text lags a step behind, until then."""
    lengths, last = grown
    ended = step >= last
    tokens = lengths[min(step, last)]
    shown = tokens if ended else lengths[max(0, step - 1)]
    ids = [*range(tokens)]
    tables: list[Mapping[int, Logprob]] = [{token: Logprob(-1.0, 1, LETTERS[token])} for token in ids]
    return CompletionOutput(
        index, LETTERS[:shown], ids, logprobs=tables if logprobs else None, finish_reason="stop" if ended else None
    )


@settings(deadline=None)  # a loaded machine may take longer
@given(scripts())
def test_pieces_are_what_is_new(outputs: list[list[RequestOutput]]) -> None:
    async def stream(script: list[RequestOutput]) -> AsyncGenerator[RequestOutput, None]:
        for each in script:
            yield each

    async def run() -> list[Any]:
        return [piece async for piece in Answers([stream(script) for script in outputs], 2, 9).pieces()]

    told: dict[int, list[Any]] = {}
    for piece in asyncio.run(run()):
        told.setdefault(piece.index, []).append(piece)
    finals = [answer for script in outputs for answer in script[-1].outputs]
    assert sorted(told) == [0, 1, 2, 3]
    for index, answer in enumerate(finals):
        pieces = told[index]
        assert [piece.first for piece in pieces] == [True] + [False] * (len(pieces) - 1)
        assert "".join(piece.answer.text for piece in pieces) == answer.text
        assert [piece.answer.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + ["stop"]
        if answer.logprobs is not None:
            assert [table for piece in pieces for table in piece.answer.logprobs] == answer.logprobs
            assert [piece.offset for piece in pieces] == [
                sum(len(before.answer.token_ids) for before in pieces[:at]) for at in range(len(pieces))
            ]
