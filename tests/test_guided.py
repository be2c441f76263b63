"""Structured output end to end: whatever random weights prefer, an answer has the structure that was asked for."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

import checkpoints
from tests.folders import byte_folder, text_folder, whisper_folder
from tests.offline import load
from transduce import LLM, BeamSearchParams, RequestError, RequestOutput, SamplingParams
from transduce.media.audio import Audio

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 90}
SOURCES = ["a cab", "hello", "transducers transduce", "x", "the end"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["é", "b c"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "size", "kind", "tags"],
    "additionalProperties": False,
}
GRAMMAR = 'start: WORD (" and " WORD)?\nWORD: /[a-f]{1,3}/'

Check = Callable[[str], object]


def follows(text: str) -> bool:
    jsonschema_rs.validate(SCHEMA, json.loads(text))
    return True


STRUCTURES: dict[str, tuple[dict[str, Any], Check]] = {
    "choice": (
        {"guided_choice": ["yes", "no", "nope", "on the fence"]},
        {"yes", "no", "nope", "on the fence"}.__contains__,
    ),
    "regex": ({"guided_regex": "[a-f]{2,5}( [g-k]{3})?"}, re.compile("[a-f]{2,5}( [g-k]{3})?").fullmatch),
    "spaced": ({"guided_regex": " ?[a-c]{2} ?"}, re.compile(" ?[a-c]{2} ?").fullmatch),
    "grammar": ({"guided_grammar": GRAMMAR}, re.compile("[a-f]{1,3}( and [a-f]{1,3})?").fullmatch),
    "json": ({"guided_json": SCHEMA}, follows),
}
WAYS: dict[str, SamplingParams | BeamSearchParams] = {
    "greedy": SamplingParams(temperature=0),
    "samples": SamplingParams(n=3, temperature=1.5, seed=4),
    "beams": BeamSearchParams(beam_width=3, num_return_sequences=3),
    "sampled beams": BeamSearchParams(beam_width=3, temperature=1.5, seed=4),
}


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """Words begin with a space that is not shown at the beginning of a text; there is no punctuation."""
    return load(text_folder(tmp_path_factory.mktemp("letters"), GENERATION))


@pytest.fixture(scope="module")
def octets(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return load(byte_folder(tmp_path_factory.mktemp("bytes"), GENERATION))


def asked(way: SamplingParams | BeamSearchParams, **more: Any) -> Any:
    given = {name: value for name in way.__dataclass_fields__ if (value := getattr(way, name)) is not None}
    return type(way)(**given | more)


def answers(outputs: Sequence[RequestOutput]) -> list[str]:
    assert [output.error for output in outputs] == [None] * len(outputs)
    return [answer.text for output in outputs for answer in output.outputs]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("tokens", ["letters", "octets"])
def test_every_answer_has_the_structure(tokens: str, structure: str, way: str, letters: LLM, octets: LLM) -> None:
    llm = letters if tokens == "letters" else octets
    fields, check = STRUCTURES[structure]
    if (tokens, structure) == ("letters", "json"):
        with pytest.raises(RequestError, match=r"guided_json needs.*'{'"):
            llm.generate("x", asked(WAYS[way], **fields))
        return
    outputs = llm.generate(SOURCES, asked(WAYS[way], **fields), use_tqdm=False)
    texts = answers(outputs)
    assert [text for text in texts if not check(text)] == []
    assert {answer.finish_reason for output in outputs for answer in output.outputs} == {"stop"}
    decode = llm.get_tokenizer().decode
    assert texts == [decode(each.token_ids, skip_special_tokens=True) for output in outputs for each in output.outputs]


def test_answers_differ_where_the_structure_lets_them(octets: LLM) -> None:
    for fields, _ in STRUCTURES.values():
        outputs = octets.generate(SOURCES, SamplingParams(n=4, temperature=1e4, seed=1, **fields), use_tqdm=False)
        assert len({*answers(outputs)}) > 1


def test_other_requests_do_not_notice(letters: LLM) -> None:
    """To the last bit of the log-probabilities."""
    plain = [
        SamplingParams(max_tokens=30, logprobs=2),
        SamplingParams(temperature=1.0, seed=3, max_tokens=20, logprobs=2),
    ]
    held = [asked(way, **fields) for way in WAYS.values() for name, (fields, _) in STRUCTURES.items() if name != "json"]
    alone = [letters.generate("hello", params, use_tqdm=False)[0].outputs[0] for params in plain]
    mixed = letters.generate(["hello"] * (2 + len(held)), [*plain, *held], use_tqdm=False)
    assert [output.outputs[0] for output in mixed[:2]] == alone
    assert [*map(check_of, held, mixed[2:])]


def check_of(params: Any, output: RequestOutput) -> None:
    (check,) = [
        check for fields, check in STRUCTURES.values() if all(getattr(params, n) == v for n, v in fields.items())
    ]
    assert all(map(check, answers([output])))


def test_preemption_changes_nothing(tmp_path: Path) -> None:
    folder = byte_folder(tmp_path, GENERATION)
    free, tight = load(folder), load(folder, kv_cache_bytes=110_000, block_size=4)
    for way in (WAYS["samples"], WAYS["beams"]):
        params = asked(way, guided_json=SCHEMA, max_tokens=80)
        expected = answers(free.generate(SOURCES, params, use_tqdm=False))
        assert answers(tight.generate(SOURCES, params, use_tqdm=False)) == expected
        assert all(map(follows, expected))
    assert tight.engine.scheduler.counters.preemptions > 0


def test_a_cut_answer_says_so(tmp_path: Path) -> None:
    """Though the checkpoint would force EOS there."""
    llm = load(text_folder(tmp_path, GENERATION | {"forced_eos_token_id": 2, "forced_bos_token_id": 0}))
    (output,) = llm.generate("hello", SamplingParams(guided_regex="[a-f]{20}", max_tokens=9), use_tqdm=False)
    (answer,) = output.outputs
    assert (len(answer.token_ids), answer.finish_reason) == (9, "length")
    assert re.fullmatch("[a-f]{7,8}", answer.text)


class Size(BaseModel):
    model_config = ConfigDict(extra="forbid")

    width: bool
    height: bool | None


def test_a_pydantic_model_is_a_schema(octets: LLM) -> None:
    outputs = octets.generate(SOURCES, SamplingParams(n=3, seed=2, guided_json=Size), use_tqdm=False)
    assert all(isinstance(Size.model_validate_json(text), Size) for text in answers(outputs))


def test_a_bad_structure_costs_its_own_request_alone(letters: LLM) -> None:
    good, bad = SamplingParams(guided_choice=["a"]), SamplingParams(guided_regex="(")
    outputs = letters.generate(["x", "x", "x"], [good, bad, SamplingParams(max_tokens=5)], use_tqdm=False)
    assert [output.error is None for output in outputs] == [True, False, True]
    assert "unclosed group" in str(outputs[1].error)
    assert outputs[0].outputs[0].text == "a"


def test_rules_that_leave_nothing_are_an_error(letters: LLM) -> None:
    params = SamplingParams(guided_choice=["ab"], bad_words=[[6]])
    (output, _) = letters.generate(["x", "y"], [params, SamplingParams(max_tokens=3)], use_tqdm=False)
    assert "rules (bad_words, choices) forbid every one" in str(output.error)
    with pytest.raises(RequestError, match="no token can follow"):
        letters.generate("x", params, use_tqdm=False)


def test_speech_answers_with_a_choice(tmp_path: Path) -> None:
    llm = load(whisper_folder(tmp_path, seed=0))
    audio: Audio = ([0.1] * 8000, 16000)
    commands = ["open", "shut it"]
    said = llm.transcribe([audio, audio], "en", sampling_params=SamplingParams(guided_choice=commands), use_tqdm=False)
    assert {each.text for each in said} <= {*commands}
    params = SamplingParams(guided_choice=commands)
    with pytest.raises(RequestError, match="beside whisper_timestamps"):
        llm.transcribe(audio, "en", timestamps=True, sampling_params=params, use_tqdm=False)


REAL: dict[str, tuple[list[str], dict[str, tuple[dict[str, Any], Check]]]] = {
    "bart-g2p": (
        ["hello", "queue", "rhythm"],
        {
            "regex": ({"guided_regex": "[a-zˈəʊ]{3,6}"}, re.compile("[a-zˈəʊ]{3,6}").fullmatch),
            "choice": ({"guided_choice": ["həlˈO", "ʤˈʌmp"]}, {"həlˈO", "ʤˈʌmp"}.__contains__),
        },
    ),
    "annalog-marian": (
        ["CCO", "c1ccccc1", "ClCCl"],
        {
            "regex": ({"guided_regex": r"(C|Cl|\[C@H\]){2,5}"}, re.compile(r"(C|Cl|\[C@H\]){2,5}").fullmatch),
            "choice": ({"guided_choice": ["CCl", "[C@@H]"]}, {"CCl", "[C@@H]"}.__contains__),
        },
    ),
    "flan-t5-small-titler": (
        ["fix a typo", "read the configuration file", "deploy"],
        {
            "regex": (
                {"guided_regex": "[A-Z][a-z]{2,8}( [a-z]{1,9}){0,3}"},
                re.compile("[A-Z][a-z]{2,8}( [a-z]{1,9}){0,3}").fullmatch,
            ),
            "choice": (
                {"guided_choice": ["bug fix", "feature", "7 — other"]},
                {"bug fix", "feature", "7 — other"}.__contains__,
            ),
            "json": (
                {"guided_json": {"type": "array", "items": {"enum": [1, "two"]}, "minItems": 1, "maxItems": 3}},
                json.loads,
            ),
        },
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_trained_checkpoints_answer_in_structures(name: str) -> None:
    sources, structures = REAL[name]
    llm = LLM(str(checkpoints.path(name)), dtype="float32", kv_cache_bytes=64 << 20)
    decode = llm.get_tokenizer().decode
    for fields, check in structures.values():
        for way in (WAYS["greedy"], WAYS["sampled beams"]):
            outputs = llm.generate(sources, asked(way, max_tokens=60, **fields), use_tqdm=False)
            assert [text for text in answers(outputs) if not check(text)] == []
            for answer in [answer for output in outputs for answer in output.outputs]:
                assert decode(answer.token_ids, skip_special_tokens=True) == answer.text


PAIRS = [
    ["restart the server", "rename a variable"],
    ["fix a bug", "add a new feature"],
    ["food", "weather"],
    ["read the file", "read the file again"],
]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_trained_model_chooses_in_its_own_spelling(pair: list[str]) -> None:
    """And the choice that teacher forcing finds the likelier, where the first tokens decide alone."""
    llm = LLM(str(checkpoints.path("flan-t5-small-titler")), dtype="float32", kv_cache_bytes=64 << 20)
    oracle = AutoModelForSeq2SeqLM.from_pretrained(checkpoints.path("flan-t5-small-titler")).eval()
    tokenizer = llm.get_tokenizer()
    spelled = [tuple(tokenizer(text_target=text)["input_ids"]) for text in pair]
    sources = ["the server hangs, restart it", "what shall we eat?", "it rains", "read the configuration file"]
    chosen: Any = {}
    for name, way in WAYS.items():
        outputs = llm.generate(sources, asked(way, guided_choice=pair), use_tqdm=False)
        chosen[name] = [tuple(answer.token_ids) for output in outputs for answer in output.outputs]
        assert {*chosen[name]} <= {*spelled}
    for source, answer in zip(sources, chosen["greedy"], strict=True):
        steps = [forced(oracle, tokenizer(source, return_tensors="pt")["input_ids"], ids) for ids in spelled]
        at = next(at for at, ids in enumerate(zip(*spelled, strict=False)) if len({*ids}) > 1)
        likelier = max((0, 1), key=lambda each: steps[each][at])
        assert answer == spelled[likelier]


def forced(oracle: Any, source: Tensor, ids: Sequence[int]) -> list[float]:
    """Log-probability of every one of the ids under teacher forcing."""
    with torch.inference_mode():
        logits = oracle(input_ids=source, labels=torch.tensor([ids])).logits[0]
    steps: list[float] = logits.log_softmax(-1)[range(len(ids)), ids].tolist()
    return steps


def test_braces_that_t5_lacks_are_named() -> None:
    llm = LLM(str(checkpoints.path("flan-t5-small-titler")), dtype="float32", kv_cache_bytes=8 << 20)
    with pytest.raises(RequestError, match=r"guided_json needs '\{' '\}', which no token of this model has"):
        llm.generate("x", SamplingParams(guided_json=SCHEMA))
