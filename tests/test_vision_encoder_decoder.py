"""OCR by the offline API, from pictures, beside transformers: TrOCR, Donut and Nougat with their own preprocessors."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    DeiTImageProcessorPil,
    DonutImageProcessorPil,
    DonutProcessor,
    GenerationConfig,
    GenerationMixin,
    NougatImageProcessorPil,
    PreTrainedTokenizerFast,
    ViTImageProcessorPil,
)
from transformers.image_processing_backends import PilBackend

from tests.engine import support
from tests.folders import _bytes as tokenizer_of_bytes
from tests.models import cases
from tests.models.tiny import Case
from tests.offline import load, tokens
from transduce import LLM, BeamSearchParams, CheckpointError, MediaError, RequestError, SamplingParams

VOCABULARY = 300
TAGS = ("<s_menu>", "</s_menu>", "<s_name>", "</s_name>", "<s_answer>", "</s_answer>", "<sep/>", "<s_task>")
IDS: Mapping[str, Any] = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "bos_token_id": 0}
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


def size(height: int, width: int) -> dict[str, int]:
    return {"height": height, "width": width}


def reading(name: str, encoder: Mapping[str, Any], decoder: Mapping[str, Any], head: str) -> Case:
    """Over bytes. The head is untied, or every answer would be one token, again and again."""
    sizes = {**decoder, "vocab_size": VOCABULARY, "tie_word_embeddings": False}
    return cases.seeing(name, encoder, sizes, (f"decoder.{head}",), **IDS)


READERS: Mapping[str, tuple[Case, PilBackend]] = {
    "TrOCR": (reading("t", cases.VIT, cases.TROCR, "output_projection"), ViTImageProcessorPil(size=size(12, 12))),
    "small TrOCR": (
        reading("small t", cases.DEIT, cases.TROCR, "output_projection"),
        DeiTImageProcessorPil(size=size(16, 16), crop_size=size(12, 12), do_center_crop=True),
    ),
    "Donut": (
        reading("d", cases.DONUT_SWIN, cases.MBART_DECODER, "lm_head"),
        DonutImageProcessorPil(size=size(14, 22), do_align_long_axis=True),
    ),
    "Nougat": (
        reading("n", cases.DONUT_SWIN, cases.MBART_DECODER, "lm_head"),
        NougatImageProcessorPil(size=size(14, 22)),
    ),
}
PICTURES = ((30, 9), (9, 30), (22, 14), (60, 41))


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and tags."""
    made = tokenizer_of_bytes()
    made.add_special_tokens({"additional_special_tokens": list(TAGS)})
    return made


@cache
def picture(width: int, height: int) -> Image.Image:
    """Noise in colour."""
    values = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def folder(name: str, parent: Path) -> Path:
    case, pixels = READERS[name]
    path = support.folder(case, parent)
    tokenizer().save_pretrained(path)
    pixels.save_pretrained(path)
    return path


@pytest.fixture(scope="module", params=list(READERS))
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, LLM]:
    return request.param, load(folder(request.param, tmp_path_factory.mktemp("reader")))


def given(at: int, prompt: str | None = None) -> dict[str, Any]:
    asked: dict[str, Any] = {"multi_modal_data": {"image": picture(*PICTURES[at])}}
    return asked if prompt is None else asked | {"prompt": prompt}


def expected(name: str, at: int, prompt: str, **fields: Any) -> list[int]:
    """By transformers' generate(), from what its preprocessor makes."""
    case, pixels = READERS[name]
    values = pixels(images=picture(*PICTURES[at]), return_tensors="pt")["pixel_values"]
    asked = {} if not prompt else {"decoder_input_ids": torch.tensor([start(prompt)])}
    config = GenerationConfig(**{**IDS, "eos_token_id": None, "max_new_tokens": 12, **fields})
    (said,) = GenerationMixin.generate(support.oracle(case), values, generation_config=config, **asked)
    ids: list[int] = said[-12:].tolist()
    return ids


def start(prompt: str) -> list[int]:
    ids: list[int] = tokenizer()(prompt, add_special_tokens=False)["input_ids"]
    return ids


@pytest.mark.parametrize("prompt", ["", "<s_task><s_answer>"])
def test_answers_are_those_of_transformers(prompt: str, reader: tuple[str, LLM]) -> None:
    name, llm = reader
    answers = llm.generate([given(at, prompt) for at in range(len(PICTURES))], GREEDY)
    theirs = [expected(name, at, prompt) for at in range(len(PICTURES))]
    assert tokens(answers) == theirs
    assert len({token for ids in theirs for token in ids}) >= 6
    prepended = [] if prompt and name in {"Donut", "Nougat"} else [2]
    assert answers[0].prompt_token_ids == [*prepended, *start(prompt)]


def test_beams_are_those_of_transformers(reader: tuple[str, LLM]) -> None:
    name, llm = reader
    (answer,) = llm.generate([given(3)], BeamSearchParams(beam_width=3, max_tokens=12, ignore_eos=True))
    assert answer.outputs[0].token_ids == expected(name, 3, "", num_beams=3)


def test_pixels_are_those_of_transformers(reader: tuple[str, LLM]) -> None:
    name, llm = reader
    for shape in PICTURES:
        values = READERS[name][1](images=picture(*shape), return_tensors="np")["pixel_values"][0]
        assert np.array_equal(llm.frontend.processor.item(picture(*shape)).data, values.astype(np.float32))


TAGGED = "<s_menu><s_name>tea</s_name><sep/><s_name>milk </s_name></s_menu></s>"


def test_what_an_answer_says(reader: tuple[str, LLM]) -> None:
    name, llm = reader
    if name == "Nougat":
        return
    parsed = llm.frontend.processor.parsed(start("<s_task>"), start(TAGGED), None, None)
    assert parsed == ({"menu": [{"name": "tea"}, {"name": "milk"}]} if name == "Donut" else None)
    if name == "Donut":
        theirs = DonutProcessor(READERS[name][1], tokenizer()).token2json(TAGGED.removesuffix("</s>"))
        assert parsed == theirs


def test_what_generation_is_asked_for_may_be_said_of_the_decoder(tmp_path: Path) -> None:
    path = folder("TrOCR", tmp_path)
    config = json.loads((path / "config.json").read_text())
    for name in IDS:
        config["decoder"][name] = config.pop(name)
    config["decoder"]["num_beams"] = 2
    (path / "config.json").write_text(json.dumps(config))
    llm = load(path)
    assert llm.generate(given(0))[0].prompt_token_ids == [2]
    assert (llm.frontend.defaults.eos, llm.frontend.defaults.num_beams) == ((2,), 2)


@pytest.mark.parametrize(
    ("prompt", "error", "match"),
    [
        ("a text", RequestError, "'a text' is no image, .*path, bytes or Pillow image"),
        ({"multi_modal_data": {"image": b"GIF89a"}}, MediaError, "image of 6 bytes"),
        ({"multi_modal_data": {"image": [picture(8, 8)] * 2}}, RequestError, "a list of 2 in one prompt"),
        ({"encoder_prompt": given(0), "target": "b"}, RequestError, "answers are not scored"),
    ],
)
def test_what_is_refused(prompt: Any, error: type[Exception], match: str, reader: tuple[str, LLM]) -> None:
    with pytest.raises(error, match=match):
        reader[1].generate(prompt, GREEDY)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"image_processor_type": "ViTImageProcessor", "size": 13}, r"makes pixels \[3, 13, 13\]; .* \[3, 12, 12\]"),
        ({"image_processor_type": "RemoteImageProcessor"}, "'RemoteImageProcessor', which Pillow alone cannot do"),
        ({}, "image_processor_type=None"),
    ],
)
def test_a_preprocessor_that_does_not_fit(settings: dict[str, Any], match: str, tmp_path: Path) -> None:
    path = folder("TrOCR", tmp_path)
    (path / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=match):
        load(path)


def test_memory_is_measured_where_widths_differ(tmp_path: Path) -> None:
    decoder = {**cases.TROCR, "vocab_size": VOCABULARY, "cross_attention_hidden_size": 12}
    path = support.folder(cases.seeing("narrow", {**cases.VIT, "hidden_size": 12}, decoder, **IDS), tmp_path)
    READERS["TrOCR"][1].save_pretrained(path)
    llm = load(path, kv_cache_bytes=None, max_num_seqs=2, skip_tokenizer_init=True)
    assert len(llm.generate(given(0), GREEDY)[0].outputs[0].token_ids) == 12


@pytest.mark.parametrize("kind", ["ViTFeatureExtractor", "ViTImageProcessorFast"])
def test_older_names_of_preprocessors(kind: str, tmp_path: Path) -> None:
    path = folder("TrOCR", tmp_path)
    settings = {"feature_extractor_type" if "Extractor" in kind else "image_processor_type": kind, "size": 12}
    (path / "preprocessor_config.json").write_text(json.dumps(settings))
    (values,) = ViTImageProcessorPil(size=size(12, 12))(images=picture(30, 9), return_tensors="np")["pixel_values"]
    assert np.array_equal(load(path).frontend.processor.item(picture(30, 9)).data, values)
