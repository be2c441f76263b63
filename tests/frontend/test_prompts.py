"""Every form of a prompt, and what is said about those that are none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.core.checks import shown
from transduce.errors import RequestError
from transduce.frontend.prompts import Media, parse

CLIP = (np.zeros(16), 16000)


@pytest.mark.parametrize(
    ("prompt", "source", "decoder"),
    [
        ("text", "text", None),
        ([1, 2], (1, 2), None),
        ((1, 2), (1, 2), None),
        (np.array([1, 2]), (1, 2), None),
        (torch.tensor([1, 2]), (1, 2), None),
        ([np.int64(1), torch.tensor(2)], (1, 2), None),
        ({"prompt": "text"}, "text", None),
        ({"prompt_token_ids": [1, 2]}, (1, 2), None),
        ({"encoder_prompt": "text", "decoder_prompt": "more"}, "text", "more"),
        ({"encoder_prompt": "text", "decoder_prompt": None}, "text", None),
        ({"encoder_prompt": "text", "decoder_prompt": ""}, "text", None),
        ({"encoder_prompt": [1], "decoder_prompt": [2, 3]}, (1,), (2, 3)),
        ({"encoder_prompt": {"prompt": "text"}, "decoder_prompt": {"prompt_token_ids": [2]}}, "text", (2,)),
        (
            {"encoder_prompt": "text", "decoder_prompt": {"prompt": None, "prompt_token_ids": [2, 3]}},
            "text",
            (2, 3),
        ),
        ({"encoder_prompt": {"prompt_token_ids": [1]}, "decoder_prompt": {"prompt": "more"}}, (1,), "more"),
        ({"encoder_prompt": "text"}, "text", None),
    ],
)
def test_prompts_to_a_text_model(prompt: object, source: object, decoder: object) -> None:
    parts = parse(prompt, None)
    assert (parts.source, parts.decoder, parts.salt) == (source, decoder, "")


@pytest.mark.parametrize(
    ("prompt", "data", "decoder"),
    [
        (CLIP, CLIP, None),
        (b"RIFF", b"RIFF", None),
        (Path("clip.wav"), Path("clip.wav"), None),
        ({"multi_modal_data": {"audio": "clip.wav"}}, "clip.wav", None),
        ({"prompt": "", "multi_modal_data": {"audio": "clip.wav"}}, "clip.wav", None),
        ({"multi_modal_data": {"audio": [CLIP]}}, CLIP, None),
        ({"prompt": "start", "multi_modal_data": {"audio": "clip.wav"}}, "clip.wav", "start"),
        ({"prompt_token_ids": [5], "multi_modal_data": {"audio": "clip.wav"}}, "clip.wav", (5,)),
        (
            {"encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": "clip.wav"}}, "decoder_prompt": "start"},
            "clip.wav",
            "start",
        ),
        ({"encoder_prompt": b"RIFF", "decoder_prompt": [5]}, b"RIFF", (5,)),
        (
            {
                "encoder_prompt": {"prompt_token_ids": [0], "multi_modal_data": {"audio": CLIP}},
                "decoder_prompt": "start",
            },
            CLIP,
            "start",
        ),
        ({"encoder_prompt": {"prompt_token_ids": [0, 0], "multi_modal_data": {"audio": CLIP}}}, CLIP, None),
        ({"encoder_prompt": {"prompt_token_ids": [0, 5], "multi_modal_data": {"audio": CLIP}}}, CLIP, (0, 5)),
    ],
)
def test_prompts_to_a_speech_model(prompt: object, data: object, decoder: object) -> None:
    parts = parse(prompt, "audio")
    assert isinstance(parts.source, Media)
    (given,) = parts.source.items
    assert given is data or given == data
    assert parts.decoder == decoder


@pytest.mark.parametrize(
    ("prompt", "items", "decoder"),
    [
        ("text", (), "text"),
        ([5, 6], (), (5, 6)),
        ({"prompt": "text"}, (), "text"),
        ({"prompt": "<|image|>", "multi_modal_data": {"image": b"one"}}, (b"one",), "<|image|>"),
        ({"prompt_token_ids": [7, 7], "multi_modal_data": {"image": [b"one", "two.png"]}}, (b"one", "two.png"), (7, 7)),
        ({"prompt": "text", "multi_modal_data": {"image": None}}, (), "text"),
        ({"prompt": "text", "multi_modal_data": None}, (), "text"),
        ({"encoder_prompt": {"prompt": "a", "multi_modal_data": {"image": b"one"}}}, (b"one",), "a"),
    ],
)
def test_prompts_with_media_in_the_text(prompt: object, items: tuple[object, ...], decoder: object) -> None:
    parts = parse(prompt, "image", interleaved=True)
    assert isinstance(parts.source, Media)
    assert parts.source.items == items
    assert parts.decoder == decoder


@pytest.mark.parametrize(
    ("prompt", "match"),
    [
        (b"GIF89a", "decoder prompt b'GIF89a'"),
        ({"prompt": "a", "multi_modal_data": {"audio": b""}}, 'give {"image": one, or a list of them}'),
        ({"prompt": "a", "multi_modal_data": [b"one"]}, 'give {"image": one, or a list of them}'),
        ({"encoder_prompt": "a", "decoder_prompt": "b"}, "text and images are one prompt"),
        ({"encoder_prompt": "a", "target": "b"}, 'no key "target"'),
        ({"prompt": "a", "prompt_token_ids": [5]}, "give one of them"),
    ],
)
def test_malformed_prompts_with_media_in_the_text(prompt: object, match: str) -> None:
    with pytest.raises(RequestError, match=match):
        parse(prompt, "image", interleaved=True)


def test_a_salt_is_kept() -> None:
    assert parse({"prompt": "text", "cache_salt": "mine"}, None).salt == "mine"
    assert parse({"encoder_prompt": "text", "cache_salt": "mine"}, None).salt == "mine"
    assert parse({"encoder_prompt": {"prompt": "text", "cache_salt": "mine"}}, None).salt == "mine"


@pytest.mark.parametrize(
    ("prompt", "media", "match"),
    [
        (None, None, "None of type NoneType: give a text or a list of token ids"),
        (3.5, None, "3.5 of type float"),
        ([1, "a"], None, "of type list"),
        ([True], None, "of type list"),
        (torch.tensor([True, False]), None, "of type Tensor"),
        ([torch.tensor(True)], None, "of type list"),
        (np.array([True]), None, "of type ndarray"),
        (torch.tensor([[5], [6]]), None, "of type Tensor"),
        (torch.tensor(5), None, "of type Tensor"),
        ({5, 6}, None, "of type set"),
        ({"prompt": "hi", "multi_modal_data": 5}, None, "multi_modal_data=5: .*encoder takes text"),
        ({"prompt": "hi", "multi_modal_data": True}, None, "multi_modal_data=True: .*encoder takes text"),
        ({"prompt": "hi", "multi_modal_data": np.zeros(5)}, None, "encoder takes text"),
        ({"multi_modal_data": 5}, "audio", "multi_modal_data=5: .*encoder takes audio"),
        ({"multi_modal_data": np.zeros(5)}, "audio", "encoder takes audio"),
        ({"prompt": "hi", "cache_salt": np.zeros(3)}, None, r"cache_salt=array\("),
        (
            {"encoder_prompt": "hi", "decoder_prompt": {"prompt": "a", "prompt_token_ids": [7]}},
            None,
            "give one of them",
        ),
        ({}, None, '{} has no text: .* give {"prompt": text}'),
        ({"encoder_prompt": {}}, None, "{} has no text"),
        ({"text": "hi"}, None, 'no key "text"; it may have "prompt"'),
        ({"prompt": "hi", "prompt_token_ids": [1]}, None, "give one of them"),
        ({"prompt": "hi", "cache_salt": 3}, None, "cache_salt=3"),
        ({"prompt": "hi", "multi_modal_data": {"audio": 1}}, None, "encoder takes text"),
        ({"decoder_prompt": "hi"}, None, 'needs an "encoder_prompt"'),
        ({"prompt": "C", "target": "N"}, None, '^"target" needs an "encoder_prompt"'),
        ({"encoder_prompt": None}, None, '^a pair needs an "encoder_prompt"'),
        ({"encoder_prompt": "C", "target": None}, None, "target None of type NoneType: give a text"),
        ({"encoder_prompt": {"prompt": "C", "cache_salt": 3}}, None, "cache_salt=3"),
        ({"encoder_prompt": "hi", "decoder_prompt": 3}, None, "decoder prompt 3 of type int"),
        ({"encoder_prompt": "hi", "prompt": "more"}, None, 'no key "prompt"'),
        ({"encoder_prompt": "hi", "decoder_prompt": {"text": "more"}}, None, 'no key "text"'),
        ("hello", "audio", "'hello' is no audio"),
        ({"prompt": "hello"}, "audio", "has no audio: this model's encoder takes audio"),
        ({"multi_modal_data": {"audio": [CLIP, CLIP]}}, "audio", "a list of 2 in one prompt"),
        ({"multi_modal_data": {"image": 1}}, "audio", "encoder takes audio"),
        ({"multi_modal_data": "clip.wav"}, "audio", "encoder takes audio"),
        ({"encoder_prompt": "hello", "decoder_prompt": "more"}, "audio", "is no audio"),
        (
            {"encoder_prompt": {"prompt": "a", "multi_modal_data": {"audio": 1}}, "decoder_prompt": "b"},
            "audio",
            "two prompts for the decoder, 'a' and 'b'",
        ),
        (
            {
                "encoder_prompt": {"prompt_token_ids": [0, 5], "multi_modal_data": {"audio": 1}},
                "decoder_prompt": "b",
            },
            "audio",
            r"two prompts for the decoder, \(0, 5\) and 'b'",
        ),
    ],
)
def test_a_malformed_prompt_is_refused_with_its_value(prompt: Any, media: str | None, match: str) -> None:
    with pytest.raises(RequestError, match=match):
        parse(prompt, media)


def test_long_values_are_shortened() -> None:
    assert shown("x" * 1000) == "'" + "x" * 58 + "…"
