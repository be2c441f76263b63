"""Trained checkpoints: the tokens of generate() in fp32, in ragged batches, small pools and with mixed prompts."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, WhisperForConditionalGeneration, WhisperProcessor

import checkpoints
from transduce import LLM, BeamSearchParams, SamplingParams
from transduce.media import audio

WORDS = (
    *(
        "transformer",
        "engine",
        "hello",
        "scheduler",
        "attention",
        "paged",
        "beautiful",
        "encoder",
        "knowledge",
        "rhythm",
    ),
    *("though", "cough", "queue", "colonel", "island", "receipt", "yacht", "a", "I", "of", "strength", "xylophone"),
    *("onomatopoeia", "antidisestablishmentarianism", "newsroom", "invoice", "translate", "together", "neighbour"),
)
MOLECULES = (
    "CCO",
    "c1ccccc1",
    "CC(=O)Oc1ccccc1C(=O)O",
    "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "C",
    "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
    "O=C(O)c1ccccc1",
    "ClCCl",
    "CCN(CC)CC",
    "c1ccc2ccccc2c1",
    "OCC1OC(O)C(O)C(O)C1O",
)
STEPS = (
    "search the repository for failing tests and open the first one",
    "read the configuration file",
    "fix a typo",
    "compare the two implementations, measure both on the same machine and write the figures into a table",
    "The user asked for a refund because the parcel arrived late; look up the order and answer politely.",
    "deploy",
)
CLIPS = ("0870", "0880", "0930")
TIGHT: dict[str, Any] = {"max_num_batched_tokens": 24, "max_encode_tokens": 64, "block_size": 4}


@cache
def oracle(name: str) -> Any:
    path = checkpoints.path(name)
    kind = WhisperForConditionalGeneration if name.startswith("whisper") else AutoModelForSeq2SeqLM
    return kind.from_pretrained(path, dtype=torch.float32).eval()


@cache
def tokenizer(name: str) -> Any:
    return AutoTokenizer.from_pretrained(checkpoints.path(name))


def llm(name: str, **options: Any) -> LLM:
    return LLM(str(checkpoints.path(name)), dtype="float32", **options)


@torch.no_grad()
def generated(name: str, text: str, prefix: Sequence[int] = (), **options: Any) -> list[int]:
    """New tokens by generate(), alone and so without padding."""
    ids = tokenizer(name)(text, return_tensors="pt").input_ids
    if prefix:
        options["decoder_input_ids"] = torch.tensor([prefix])
    out: list[int] = oracle(name).generate(input_ids=ids, max_new_tokens=40, **options)[0].tolist()
    return out[max(1, len(prefix)) :]


def ours(outputs: Sequence[Any]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


TEXTS = [("bart-g2p", WORDS), ("annalog-marian", MOLECULES), ("flan-t5-small-titler", STEPS)]


def batch(texts: Sequence[str], size: int) -> list[str]:
    return [texts[i % len(texts)] for i in range(size)]


@pytest.mark.parametrize(("name", "texts"), TEXTS, ids=lambda value: value if isinstance(value, str) else "")
def test_text_checkpoints_answer_as_generate(name: str, texts: Sequence[str]) -> None:
    expected = {text: generated(name, text) for text in texts}
    assert len({tuple(tokens) for tokens in expected.values()}) > len(texts) // 2
    params = SamplingParams(max_tokens=40)
    for size, options in ((1, {}), (len(texts), {}), (64, {}), (17, TIGHT)):
        model = llm(name, **options)
        asked = batch(texts, size)
        assert ours(model.generate(asked, params, use_tqdm=False)) == [expected[text] for text in asked]


@pytest.mark.parametrize(("name", "texts"), TEXTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_pool_that_preempts_changes_nothing(name: str, texts: Sequence[str]) -> None:
    model = llm(name, kv_cache_bytes=small_pool(name, texts), block_size=4)
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    free = llm(name)
    expected = ours(free.generate(list(texts[:8]), params, use_tqdm=False))
    assert ours(model.generate(list(texts[:8]), params, use_tqdm=False)) == expected
    assert model.engine.scheduler.counters.preemptions > 0


def small_pool(name: str, texts: Sequence[str]) -> int:
    """Bytes for about one and a half of the longest requests, in blocks of 4 tokens."""
    config = oracle(name).config
    longest = max(len(tokenizer(name)(text).input_ids) for text in texts[:8])
    layers: int = getattr(config, "decoder_layers", None) or config.num_decoder_layers
    width: int = config.num_heads * config.d_kv if config.model_type == "t5" else config.d_model
    return int(1.5 * (longest + 44)) * 2 * layers * width * 4


@pytest.mark.parametrize(("name", "texts"), TEXTS, ids=lambda value: value if isinstance(value, str) else "")
def test_mixed_decoder_prefixes(name: str, texts: Sequence[str]) -> None:
    start = oracle(name).generation_config.decoder_start_token_id
    rng = np.random.default_rng(0)
    prefixes = [[start, *generated(name, text)[: int(rng.integers(0, 4))]] for text in texts]
    expected = [generated(name, text, prefix) for text, prefix in zip(texts, prefixes, strict=True)]
    prompts = [
        {"encoder_prompt": text, "decoder_prompt": {"prompt_token_ids": prefix}}
        for text, prefix in zip(texts, prefixes, strict=True)
    ]
    assert ours(llm(name).generate(prompts, SamplingParams(max_tokens=40), use_tqdm=False)) == expected


BEAMS: list[dict[str, Any]] = [
    {"beam_width": 4},
    {"beam_width": 2, "length_penalty": 0.0, "early_stopping": True},
    {"beam_width": 8, "length_penalty": 2.0, "early_stopping": "never", "num_return_sequences": 8},
    {"beam_width": 5, "length_penalty": -1.0, "num_return_sequences": 3, "min_tokens": 6},
]


def searches() -> Iterator[object]:
    """Each checkpoint in each way; the slowest in the widest only among the long tests."""
    for (name, texts), fields in product(TEXTS, BEAMS):
        slow = name.startswith("flan") and fields["beam_width"] > 4
        marks = pytest.mark.long if slow else ()
        yield pytest.param(name, texts, fields, id=f"{name}, width {fields['beam_width']}", marks=marks)


@pytest.mark.parametrize(("name", "texts", "fields"), list(searches()))
def test_beams_are_those_of_generate(name: str, texts: Sequence[str], fields: dict[str, Any]) -> None:
    texts, options = (
        texts[-6:],
        {**fields, "num_beams": fields["beam_width"], "min_new_tokens": fields.get("min_tokens")},
    )
    options = {key: value for key, value in options.items() if key not in {"beam_width", "min_tokens"}}
    outputs = llm(name, **TIGHT).generate(texts, BeamSearchParams(max_tokens=24, **fields), use_tqdm=False)
    eos = oracle(name).generation_config.eos_token_id
    for text, output in zip(texts, outputs, strict=True):
        with torch.no_grad():
            expected = oracle(name).generate(
                input_ids=tokenizer(name)(text, return_tensors="pt").input_ids,
                max_new_tokens=24,
                return_dict_in_generate=True,
                output_scores=True,
                **options,
            )
        rows = [row[: row.index(eos) + 1] if eos in row else row for row in expected.sequences[:, 1:].tolist()]
        assert [answer.token_ids for answer in output.outputs] == rows
        scores = pytest.approx(expected.sequences_scores.tolist(), rel=1e-4, abs=1e-4)
        assert [answer.score for answer in output.outputs] == scores


def samples(clip: str) -> npt.NDArray[np.float32]:
    return audio.decode(Path("samples") / f"sense_and_sensibility_01_austen_64kb-{clip}.wav", 16000)


@torch.no_grad()
def test_whisper_transcribes_as_generate() -> None:
    path = checkpoints.path("whisper-tiny.en")
    processor, model = WhisperProcessor.from_pretrained(path), oracle("whisper-tiny.en")
    clips = [samples(clip) for clip in CLIPS]
    clips += [clips[0][: 16000 * seconds] for seconds in (1, 2, 4)]
    expected: list[list[int]] = []
    searched: list[list[int]] = []
    for each in clips:
        features = processor(each, sampling_rate=16000, return_tensors="pt").input_features
        # Neither the prompt nor the EOS is part of what Whisper's generate() returns.
        expected.append([*model.generate(features)[0].tolist(), model.config.eos_token_id])
        searched.append([*model.generate(features, num_beams=5)[0].tolist(), model.config.eos_token_id])
    engine = llm("whisper-tiny.en")
    outputs = engine.transcribe([(each, 16000) for each in clips])
    assert ours([said.output for said in outputs]) == expected
    assert outputs[2].text == "He might even have been made amiable himself."
    assert engine.engine.scheduler.cache.hits == 0
    engine.transcribe([(each, 16000) for each in clips])
    assert engine.engine.scheduler.cache.hits == len(clips)
    beams = engine.transcribe([(each, 16000) for each in clips], sampling_params=BeamSearchParams(beam_width=5))
    assert ours([said.output for said in beams]) == searched


def joined(*parts: str | float) -> npt.NDArray[np.float32]:
    """Clips, and silences of so many seconds."""
    silences = (np.zeros(int(16000 * part), np.float32) if isinstance(part, float) else samples(part) for part in parts)
    return np.concatenate([*silences])


SHORT = ("0870", 3.0, "0880", 1.0, "0930", 2.5, "0870", 9.0, "0930")
LONG = (*SHORT, 0.3, "0880", 12.0, "0870", "0880", 4.0)


@torch.no_grad()
@pytest.mark.parametrize(
    ("parts", "condition"),
    [(SHORT, True), *(pytest.param(LONG, condition, marks=pytest.mark.long) for condition in (True, False))],
    ids=["short", "long", "long, unconditioned"],
)
def test_long_audio_has_the_segments_of_generate(parts: Sequence[str | float], condition: bool) -> None:
    """Their times and texts, but that none ends after its audio: there transformers is not followed."""
    path, recording = checkpoints.path("whisper-tiny.en"), joined(*parts)
    end = len(recording) / 16000
    processor, model = WhisperProcessor.from_pretrained(path), oracle("whisper-tiny.en")
    options: dict[str, Any] = {"truncation": False, "padding": "longest", "return_attention_mask": True}
    heard = processor(recording, sampling_rate=16000, return_tensors="pt", **options)
    thresholds = {"no_speech_threshold": 0.6, "logprob_threshold": -1.0, "compression_ratio_threshold": 2.4}
    made = model.generate(
        heard.input_features,
        attention_mask=heard.attention_mask,
        return_timestamps=True,
        return_segments=True,
        temperature=(0.0,),
        condition_on_prev_tokens=condition,
        **thresholds,
    )
    expected = [
        (round(float(each["start"]), 2), round(min(float(each["end"]), end), 2), processor.decode(each["tokens"], True))
        for each in made["segments"][0]
    ]
    said = llm("whisper-tiny.en").transcribe(
        (recording, 16000),
        condition_on_previous_text=condition,
        sampling_params=SamplingParams(temperature=0.0),
        use_tqdm=False,
    )
    assert [(round(each.start, 2), round(each.end, 2), each.text) for each in said.segments] == expected
    assert len({each.seek for each in said.segments}) > 1
