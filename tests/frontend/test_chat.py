"""Conversations: forms of messages, and what they become for models without a chat template."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.frontend import fakes
from transduce import RequestError, SamplingParams
from transduce.frontend.chat import answered, conversations, policy
from transduce.frontend.dialogue import Work

IMAGE = {"type": "image", "image": b"one"}
TEXT = {"type": "text", "text": "who?"}
HELLO = {"role": "user", "content": "hello"}


def asked(messages: object, media: str | None) -> object:
    """The prompt that a conversation makes."""
    frontend = fakes.frontend(media)
    frontend.processor.tokenizer.chat_template = None
    with ThreadPoolExecutor(1) as threads:
        (work,) = next(answered(messages, SamplingParams(), frontend, policy(frontend.config), threads))  # type: ignore[misc]
    assert isinstance(work, Work)
    return work.prompt


@pytest.mark.parametrize(
    ("content", "media", "prompt"),
    [
        ("hello", None, "hello"),
        ([TEXT, TEXT], None, "who?\nwho?"),
        ([IMAGE], "image", {"multi_modal_data": {"image": b"one"}}),
        ([IMAGE, TEXT], "image", {"multi_modal_data": {"image": b"one"}, "prompt": "who?"}),
        ([TEXT, IMAGE], "image", {"multi_modal_data": {"image": b"one"}, "prompt": "who?"}),
    ],
)
def test_one_message_is_the_prompt(content: object, media: str | None, prompt: object) -> None:
    assert asked([{"role": "user", "content": content}], media) == prompt


@pytest.mark.parametrize(
    ("messages", "media", "match"),
    [
        ([], None, "give a list of messages"),
        ("hello", None, "give a list of messages"),
        ([5], None, r'messages\[0\] 5: give {"role"'),
        ([{"role": "user"}], None, r"messages\[0\]"),
        ([HELLO, {**HELLO, "tool_calls": []}], None, r"messages\[1\]"),
        ([{"role": "user", "content": [TEXT, {"type": "video"}]}], None, r"messages\[0\]\.content\[1\] .*give"),
        ([HELLO, HELLO], None, "exactly one message, of role user, whose content"),
        ([{**HELLO, "role": "system"}], "image", "exactly one message, of role user, with one image"),
        ([HELLO], "image", "0 images; the model takes one"),
        ([{"role": "user", "content": [IMAGE, IMAGE]}], "image", "2 images; the model takes one"),
        ([{"role": "user", "content": [IMAGE] * 17}], "image", "image: 17 in one prompt, and at most 16"),
        ([{"role": "user", "content": [TEXT, IMAGE]}], None, r"content\[1\]\.image: this model takes text, no images"),
        ([HELLO], "audio", "this model takes audio, no messages"),
    ],
)
def test_what_is_no_conversation_with_the_model(messages: object, media: str | None, match: str) -> None:
    with pytest.raises(RequestError, match=match):
        asked(messages, media)


def test_one_conversation_or_several() -> None:
    several: list[Any] = [[HELLO], [HELLO, HELLO]]
    assert conversations(several) == several
    assert conversations([HELLO]) == [[HELLO]]
