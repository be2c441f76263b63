"""Florence-2 by the offline API, from pictures and tasks, beside transformers with its own processor."""

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file
from tokenizers import AddedToken, pre_tokenizers
from transformers import BartTokenizer, CLIPImageProcessorPil, Florence2Processor, GenerationConfig, GenerationMixin

from tests.engine import support
from tests.models import cases
from tests.models.test_florence2 import older, older_state
from tests.models.tiny import checkpoint
from tests.offline import load, tokens
from transduce import LLM, CapacityError, CheckpointError, RequestError, SamplingParams

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
BYTES = {name: i for i, name in enumerate((*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())))}
IMAGE = len(BYTES) + 1
SIZE = {"height": 20, "width": 16}
IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
CASE = replace(
    cases.florence2(
        "bytes",
        {**IDS, "vocab_size": 1300, "max_position_embeddings": 96},
        image_token_id=IMAGE,
        tie_word_embeddings=False,
    ),
    untie=("lm_head",),
)
ROWS = 3 * 2 + 1
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)


def tokenizer(**options: Any) -> BartTokenizer:
    return BartTokenizer(vocab=BYTES, merges=[], **options)


@cache
def processor() -> Florence2Processor:
    """transformers' own, with tokens for places."""
    text = tokenizer(extra_special_tokens={"image_token": "<image>"})
    text.add_tokens([AddedToken(f"<loc_{i}>", special=True) for i in range(1000)], special_tokens=True)
    kinds = ("pure_text", "ocr", "description_with_bboxes", "polygons", "bboxes", "description_with_bboxes_or_polygons")
    told = {**{kind: {} for kind in kinds}, "phrase_grounding": {"banned_grounding_tokens": ["it"]}}
    pixels = CLIPImageProcessorPil(size=SIZE, do_center_crop=False, image_seq_length=ROWS)
    return Florence2Processor(pixels, text, post_processor_config=told)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = support.folder(CASE, tmp_path_factory.mktemp("florence2"))
    processor().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return load(folder)


@cache
def picture(width: int, height: int) -> Image.Image:
    """Noise in colour."""
    values = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


PROMPTS = (
    ("<CAPTION>", (9, 8)),
    ("<CAPTION>", (31, 17)),
    ("<OD>", (31, 17)),
    ("<CAPTION_TO_PHRASE_GROUNDING>a cat", (40, 9)),
    ("<REGION_TO_OCR><loc_3><loc_40><loc_500><loc_999>", (20, 16)),
    ("what is it?", (16, 20)),
    ("", (20, 16)),
)


def given(text: str, size: tuple[int, int]) -> dict[str, Any]:
    return {"prompt": text, "multi_modal_data": {"image": picture(*size)}}


def expected(text: str, size: tuple[int, int]) -> list[int]:
    made = processor()(text=text, images=picture(*size), return_tensors="pt")
    model = support.oracle(CASE)
    config = GenerationConfig(decoder_start_token_id=2, pad_token_id=1, max_new_tokens=8)
    answer = GenerationMixin.generate(model, **made, generation_config=config)
    return [int(token) for token in answer[0, 1:]]


def test_answers_are_those_of_transformers(llm: LLM) -> None:
    outputs = llm.generate([given(*prompt) for prompt in PROMPTS], GREEDY)
    answers = [expected(*prompt) for prompt in PROMPTS]
    assert tokens(outputs) == answers
    assert len({token for answer in answers for token in answer}) >= 6
    assert answers[0] != answers[1] != answers[2]


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt[0])
def test_images_and_text_are_processed_as_by_transformers(prompt: tuple[str, tuple[int, int]], llm: LLM) -> None:
    made = processor()(text=prompt[0], images=picture(*prompt[1]))
    ours = llm.frontend.processor
    assert [IMAGE] * ROWS + ours.source_ids(prompt[0]) == made["input_ids"][0]
    item = ours.item(picture(*prompt[1]))
    assert np.array_equal(item.data, made["pixel_values"][0])
    assert item.rows == ROWS


def test_an_image_is_encoded_once_for_a_prompt(llm: LLM) -> None:
    """Another prompt about it is another input: their rows see each other."""
    counters = llm.engine.scheduler.counters
    before = counters.encoded_rows
    asked = [given(question, (24, 8)) for question in ("who?", "where?", "who?")]
    output = llm.generate(asked, GREEDY)[1]
    assert counters.encoded_rows - before == 2 * ROWS + len("<who?>") + len("<where?>")
    assert output.encoder_prompt == "where?"


def test_ids_and_a_decoder_prompt(llm: LLM) -> None:
    ids, image = llm.frontend.processor.source_ids("<OD>"), {"image": picture(31, 17)}
    answer = expected("<OD>", (31, 17))
    inner = {"prompt_token_ids": ids, "multi_modal_data": image}
    pair = {"encoder_prompt": inner, "decoder_prompt": [2, *answer[:3]]}
    outputs = llm.generate([inner, pair], GREEDY)
    assert tokens(outputs)[0] == answer
    assert tokens(outputs)[1][:5] == answer[3:]


ANSWERS = (
    ("<CAPTION>", "a cat"),
    ("<OD>", "cat<loc_1><loc_20><loc_300><loc_999>dog<loc_0><loc_0><loc_5><loc_6><loc_7><loc_8><loc_9><loc_10>"),
    ("<CAPTION_TO_PHRASE_GROUNDING>a cat", "it<loc_1><loc_2><loc_3><loc_4>a cat<loc_1><loc_20><loc_300><loc_999>"),
    ("<REGION_PROPOSAL>", "<loc_1><loc_20><loc_300><loc_999>"),
    ("<OCR_WITH_REGION>", "a word<loc_1><loc_2><loc_3><loc_4><loc_5><loc_6><loc_7><loc_8>"),
    ("<REFERRING_EXPRESSION_SEGMENTATION>a cat", "<loc_1><loc_2><loc_3><loc_4><loc_5><loc_6>"),
    ("<OPEN_VOCABULARY_DETECTION>a cat", "cat<loc_1><loc_20><loc_300><loc_999>"),
)


@pytest.mark.parametrize(("prompt", "answer"), ANSWERS)
def test_places_are_read_from_an_answer(prompt: str, answer: str, llm: LLM) -> None:
    ours, text = llm.frontend.processor, processor().tokenizer
    ids = [0, *text(answer, add_special_tokens=False)["input_ids"], 2]
    task = prompt[: prompt.index(">") + 1]
    whole = processor().post_process_generation(text=f"<s>{answer}</s>", task=task, image_size=(640, 480))
    assert ours.parsed([2], ids, prompt, (640, 480)) == whole
    assert "cat" not in answer or "cat" in json.dumps(whole)


@pytest.mark.parametrize(("prompt", "size"), [("a cat", (8, 8)), (None, (8, 8)), ("<OD>", None)])
def test_nothing_is_read_without_a_task(prompt: str | None, size: tuple[int, int] | None, llm: LLM) -> None:
    assert llm.frontend.processor.parsed([2], [0, 5, 2], prompt, size) is None


@pytest.mark.parametrize(
    ("prompt", "error", "match"),
    [
        (given("<OD>a cat", (8, 8)), RequestError, "<OD> should be the only content"),
        ({"prompt": "<OD>"}, RequestError, "has no image"),
        ("<OD>", RequestError, "is no image"),
        (given("a" * 90, (8, 8)), CapacityError, f"the prompt has 92 tokens and the model takes {96 - ROWS}"),
        ({**given("", (8, 8)), "target": "b"}, RequestError, "target"),
    ],
)
def test_refusals(prompt: Any, error: type[Exception], match: str, llm: LLM) -> None:
    with pytest.raises(error, match=match):
        llm.generate(prompt, GREEDY)


def test_a_prompt_is_cut(llm: LLM) -> None:
    whole, cut = (SamplingParams(max_tokens=4, truncate_prompt_tokens=keep) for keep in (None, 5))
    outputs = llm.generate([given("abc", (8, 8)), given("abcdef", (8, 8))], [whole, cut])
    assert tokens(outputs)[0] == tokens(outputs)[1]


def test_as_published_first(folder: Path, tmp_path: Path, llm: LLM) -> None:
    """Names, fields and tokens are those of Microsoft's code."""
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 96}))
    made = checkpoint(CASE)
    code = {"AutoConfig": "configuration_florence2.Florence2Config"}
    config = {**older(made.raw), "architectures": ["Florence2ForConditionalGeneration"], "auto_map": code}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(older_state(made.state), tmp_path / "model.safetensors")
    shutil.copy(folder / "processor_config.json", tmp_path)
    first = load(tmp_path)
    prompts = [given(*prompt) for prompt in PROMPTS if "<loc" not in prompt[0]]
    assert tokens(first.generate(prompts, GREEDY)) == tokens(llm.generate(prompts, GREEDY))
    ours = first.frontend.processor
    places = ours.source_ids("<loc_0><loc_999><poly>")
    assert places == [0, len(BYTES) + 1 + 4, len(BYTES) + 1 + 1003, len(BYTES) + 1 + 1021, 2]
    answer = ours.parsed([2], places[1:], "<REGION_PROPOSAL>", (10, 10))
    assert answer == {"<REGION_PROPOSAL>": {"bboxes": [], "labels": []}}


def test_a_tokenizer_without_an_image_token(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    settings = tmp_path / "copy" / "tokenizer_config.json"
    told = json.loads(settings.read_text())
    settings.write_text(json.dumps({name: value for name, value in told.items() if name != "image_token"}))
    with pytest.raises(CheckpointError, match="names no image_token"):
        load(tmp_path / "copy")
