"""Llama 3.2 Vision by the offline API, from pictures and text, beside transformers with its own processor."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import MllamaImageProcessorPil, MllamaProcessor, PreTrainedTokenizerFast
from transformers.models.mllama.modeling_mllama import MllamaForConditionalGeneration

from tests.engine import support
from tests.models import cases, mllama
from tests.offline import load, tokens
from transduce import LLM, CheckpointError, MediaError, RequestError, SamplingParams
from transduce.models.base import find

SPECIAL = ("<pad>", "</s>", "<s>", "<unk>")
IMAGE = "<|image|>"
SIZE = {"height": 8, "width": 8}
CASE = cases.mllama("bytes", {"vocab_size": len(SPECIAL) + 256}, image_token_index=len(SPECIAL) + 256)
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, behind a BOS."""
    names = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 2)])
    made.add_special_tokens([IMAGE])
    names_of = dict(zip(("pad_token", "eos_token", "bos_token", "unk_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=made, **names_of)


def written(parent: Path) -> Path:
    """The checkpoint's folder."""
    folder = support.folder(CASE, parent)
    tokenizer().save_pretrained(folder)
    MllamaImageProcessorPil(size=SIZE).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("mllama"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return load(folder)


@cache
def picture(width: int, height: int) -> Image.Image:
    """Noise in colour."""
    values = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


PROMPTS: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = (
    ("a word", ()),
    (f"{IMAGE}what?", ((9, 8),)),
    (f"{IMAGE}{IMAGE}two", ((40, 9), (5, 60))),
    (f"see {IMAGE} and {IMAGE}.", ((16, 16), (3, 3))),
    (f"<s>{IMAGE}", ((31, 17),)),
)


def given(text: str, sizes: Sequence[tuple[int, int]]) -> dict[str, Any]:
    pictures = [picture(*size) for size in sizes]
    return {"prompt": text, "multi_modal_data": {"image": pictures}} if pictures else {"prompt": text}


def processed(text: str, sizes: Sequence[tuple[int, int]]) -> tuple[list[int], list[torch.Tensor]]:
    """Token ids and images in tiles, by transformers' processor."""
    processor = MllamaProcessor(MllamaImageProcessorPil(size=SIZE), tokenizer())
    pictures = [picture(*size) for size in sizes]
    made = processor(text=text, images=pictures or None)
    images = []
    for i in range(len(pictures)):
        down, across = CASE_RATIOS[made["aspect_ratio_ids"][0][i] - 1]
        tiles = torch.tensor(made["pixel_values"][0][i][: down * across])
        images.append(tiles.unflatten(0, (down, across)))
    return made["input_ids"][0], images


CASE_RATIOS = find("mllama").config(CASE.raw).vision.ratios


def test_answers_are_those_of_transformers(llm: LLM) -> None:
    model = support.oracle(CASE)
    assert isinstance(model, MllamaForConditionalGeneration)
    outputs = llm.generate([given(*prompt) for prompt in PROMPTS], GREEDY)
    expected = [mllama.greedy(model, *processed(*prompt), 8)[0] for prompt in PROMPTS]
    assert tokens(outputs) == expected
    assert len({token for answer in expected for token in answer}) >= 6


@pytest.mark.parametrize("prompt", PROMPTS[1:], ids=lambda prompt: prompt[0])
def test_images_and_text_are_processed_as_by_transformers(
    prompt: tuple[str, tuple[tuple[int, int], ...]], llm: LLM
) -> None:
    ids, images = processed(*prompt)
    processor = llm.frontend.processor
    assert list(processor.decoder_ids(prompt[0], {})) == ids
    for size, image in zip(prompt[1], images, strict=True):
        item = processor.item(picture(*size))
        assert np.array_equal(item.data, image.numpy())
        assert item.rows == 5 * image.shape[0] * image.shape[1]


def test_an_image_is_encoded_once(llm: LLM) -> None:
    before = llm.engine.scheduler.counters.encoded_rows
    asked = [given(f"{IMAGE}{question}", ((24, 8),)) for question in ("who?", "where?", "why?")]
    llm.generate(asked, GREEDY)
    assert llm.engine.scheduler.counters.encoded_rows - before == 15


@pytest.mark.parametrize(
    ("prompt", "error", "match"),
    [
        (given("no place", ((8, 8),)), RequestError, "0 image tokens and 1 images"),
        ({"prompt": f"{IMAGE} nothing"}, RequestError, "1 image tokens and 0 images"),
        ({"prompt": IMAGE, "multi_modal_data": {"image": b"GIF89a"}}, MediaError, "image of 6 bytes"),
        ({"prompt": ""}, RequestError, "the prompt is empty"),
        ({"multi_modal_data": {"image": picture(8, 8)}}, RequestError, "the prompt is empty"),
        ({"prompt": "a", "target": "b"}, RequestError, 'no key "target"'),
    ],
)
def test_what_is_refused(prompt: dict[str, Any], error: type[Exception], match: str, llm: LLM) -> None:
    with pytest.raises(error, match=match):
        llm.generate(prompt, GREEDY)


@pytest.mark.parametrize("size", [16, None])
def test_a_preprocessor_that_does_not_fit(size: int | None, folder: Path, tmp_path: Path) -> None:
    other = support.folder(CASE, tmp_path)
    tokenizer().save_pretrained(other)
    if size is not None:
        MllamaImageProcessorPil(size={"height": size, "width": size}).save_pretrained(other)
    with pytest.raises(CheckpointError, match="16 x 16 pixels" if size else "makes no preprocessor"):
        load(other)
