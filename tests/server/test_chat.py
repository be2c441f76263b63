"""/v1/chat/completions by the official client: what messages become, and the form of the answers."""

from typing import Any

import pytest
from openai import BadRequestError

from tests.folders import _letters as letters
from tests.server.asgi import call
from tests.server.fakes import FakeLLM, app
from tests.server.live import MODEL, Live
from transduce import SamplingParams

MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]
PATH = "/v1/chat/completions"


def test_a_single_message_is_the_source(text: Live) -> None:
    made = text.openai.chat.completions.create(model=MODEL, messages=MESSAGES, max_completion_tokens=9)
    (output,) = text.offline.generate("hello", SamplingParams(max_tokens=9))
    (choice,) = made.choices
    assert (choice.message.role, choice.message.content) == ("assistant", output.outputs[0].text)
    assert choice.finish_reason == output.outputs[0].finish_reason
    assert (made.object, made.model) == ("chat.completion", MODEL)
    assert made.id.startswith("chatcmpl-")
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (8, 9)


def test_content_in_parts(text: Live) -> None:
    parts: list[Any] = [{"type": "text", "text": "a cab"}, {"type": "text", "text": "x"}]
    made = text.openai.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": parts}])
    (output,) = text.offline.generate("a cab\nx")
    assert made.choices[0].message.content == output.outputs[0].text


def test_samples(text: Live) -> None:
    asked: dict[str, Any] = {"n": 3, "temperature": 1.0, "seed": 5, "max_tokens": 8}
    made = text.openai.chat.completions.create(model=MODEL, messages=MESSAGES, **asked)
    (output,) = text.offline.generate("hello", SamplingParams(**asked))
    assert [choice.message.content for choice in made.choices] == [answer.text for answer in output.outputs]
    assert [choice.index for choice in made.choices] == [0, 1, 2]


@pytest.mark.parametrize("top", [None, 0, 2])
def test_logprobs_are_the_offline_ones(top: int | None, text: Live) -> None:
    asked: dict[str, Any] = {"temperature": 1.0, "seed": 4, "max_tokens": 6}
    made = text.openai.chat.completions.create(model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=top, **asked)
    (output,) = text.offline.generate("hello", SamplingParams(**asked, logprobs=top or 0))
    logprobs, answer = made.choices[0].logprobs, output.outputs[0]
    assert logprobs is not None
    assert logprobs.content is not None
    assert answer.logprobs is not None
    for said, token, table in zip(logprobs.content, answer.token_ids, answer.logprobs, strict=True):
        assert (said.token, said.logprob) == (table[token].decoded_token, table[token].logprob)
        assert bytes(said.bytes or ()).decode() == said.token
        likeliest = [(each.decoded_token, each.logprob) for each in table.values() if each.rank is not None]
        assert [(each.token, each.logprob) for each in said.top_logprobs] == likeliest
        assert len(likeliest) == (top or 0)


def test_a_source_that_is_too_long_is_the_messages_fault(text: Live) -> None:
    with pytest.raises(BadRequestError) as refused:
        text.openai.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "a" * 99}])
    assert (refused.value.param, refused.value.code) == ("messages", "too_long")


def test_without_logprobs_there_are_none(text: Live) -> None:
    made = text.openai.chat.completions.create(model=MODEL, messages=MESSAGES, logprobs=False, max_tokens=2)
    assert made.choices[0].logprobs is None


CONVERSATIONS: list[list[Any]] = [
    [{"role": "system", "content": "hello"}],
    [{"role": "system", "content": "be brief"}, *MESSAGES],
    [*MESSAGES, {"role": "assistant", "content": "x"}, *MESSAGES],
]


@pytest.mark.parametrize("messages", CONVERSATIONS, ids=len)
def test_a_conversation_without_a_template_is_refused(messages: list[Any], text: Live) -> None:
    with pytest.raises(BadRequestError, match="no chat template; give exactly one message, of role user"):
        text.openai.chat.completions.create(model=MODEL, messages=messages)


TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "<s>{{ message.role }} {{ message.content }}</s>{% endfor %}{% if add_generation_prompt %}Z{% endif %}"
)


class Templated(FakeLLM):
    """A model whose tokenizer has a chat template."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = letters()
        self.tokenizer.chat_template = TEMPLATE
        self.frontend.processor.tokenizer = self.tokenizer


def test_a_template_makes_token_ids_of_a_conversation() -> None:
    llm = Templated()
    turns = [*MESSAGES, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}, *MESSAGES]
    assert call(app(llm), "POST", PATH, {"messages": turns}).status == 200
    rendered = "<s>user hello</s><s>assistant x</s><s>user hello</s>Z"
    ids = llm.tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert llm.asked[0]["prompt"] == {"encoder_prompt": ids, "decoder_prompt": None}
    assert ids.count(2) == 3


def test_what_a_template_refuses_is_said() -> None:
    refused = call(app(Templated()), "POST", PATH, {"messages": [{"role": "system", "content": "x"}, *MESSAGES]})
    assert refused.status == 400
    assert "no system here" in refused.json["error"]["message"]
