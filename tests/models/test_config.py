"""Config views: transformers' defaults, and what is refused."""

import dataclasses
import json
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, BartConfig, BartForConditionalGeneration, GenerationConfig

from tests.models import cases
from tests.models.tiny import Case
from transduce.errors import CheckpointError
from transduce.models.base import find, known
from transduce.models.config import generation_fields, start_token
from transduce.models.t5 import rename


@pytest.mark.parametrize("model_type", ["bart", "marian", "moonshine", "t5", "whisper"])
def test_absent_fields_have_transformers_defaults(model_type: str) -> None:
    ours, theirs = find(model_type).config({}), AutoConfig.for_model(model_type)
    resolved = {"tie_word_embeddings", "scale_decoder_outputs", "num_decoder_layers", "decoder_vocab_size"}
    rope = getattr(theirs, "rope_parameters", {})
    for field in dataclasses.fields(ours):
        if field.name not in resolved and "num_key_value_heads" not in field.name:
            default = rope.get(field.name, getattr(theirs, field.name, None))
            assert getattr(ours, field.name) == default, field.name


def test_families_are_found() -> None:
    assert known() == ["bart", "marian", "moonshine", "t5", "whisper"]
    with pytest.raises(CheckpointError, match="'gpt2' is not supported; known: bart, marian"):
        find("gpt2")


REFUSED: tuple[tuple[Case, str], ...] = (
    (cases.bart("", {"activation_function": "tanh"}), "'tanh' is not supported"),
    (cases.bart("", {"decoder_attention_heads": 5}), "24 is not a multiple of 5 heads"),
    (cases.t5("", {"feed_forward_proj": "gated-tanh"}), "'tanh' is not supported"),
    (cases.t5("", {"feed_forward_proj": "doubly-gated-gelu"}), "doubly-gated-gelu"),
    (cases.moonshine("", {"decoder_num_attention_heads": 6}), "decoder_num_attention_heads=6 beside"),
    (cases.moonshine("", {"encoder_num_key_value_heads": 1}), "encoder_num_key_value_heads=1 beside"),
    (cases.moonshine("", {"rope_scaling": {"rope_type": "linear"}}), "rope_type='linear'"),
    (cases.moonshine("", {"rope_scaling": {"type": "dynamic"}}), "rope_type='dynamic'"),
    (cases.moonshine("", {"rope_parameters": [10000.0]}), r"rope parameters \[10000\.0\]; they should be an object"),
    (cases.moonshine("", {"partial_rotary_factor": 1.5}), r"partial_rotary_factor=1\.5"),
    (cases.moonshine("", {"partial_rotary_factor": 0}), "partial_rotary_factor=0"),
)


@pytest.mark.parametrize(("case", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_we_cannot_do_is_refused(case: Case, message: str) -> None:
    family = find(case.model_type)
    with pytest.raises(CheckpointError, match=message):
        family.spec(family.config(case.raw))


def test_a_spec_is_the_checkpoints() -> None:
    spec = find("marian").spec(find("marian").config(cases.marian("", cases.THREE_TABLES).raw))
    assert (spec.source_vocab, spec.target_vocab, spec.vocab_size) == (50, 43, 43)
    assert (spec.max_source, spec.max_target, spec.fixed_rows) == (32, 32, None)
    spec = find("whisper").spec(find("whisper").config(cases.WHISPER[0].raw))
    assert (spec.source_vocab, spec.max_source, spec.max_target, spec.fixed_rows) == (0, None, 32, 12)
    spec = find("t5").spec(find("t5").config({"num_layers": 2, "num_decoder_layers": 5, "d_kv": 7}))
    assert (spec.max_source, spec.max_target, spec.head_dim, spec.bias) == (None, None, 7, True)
    assert [(group.name, group.layers) for group in spec.groups] == [("self", 5), ("cross", 5)]


@pytest.mark.parametrize("value", ["24", 24.0, None, 0, -24, True, [24]])
def test_a_size_is_a_whole_number_above_0(value: object) -> None:
    with pytest.raises(CheckpointError) as caught:
        find("bart").config({"d_model": value})
    assert str(caught.value) == f"config.json has d_model={value!r}; it should be a whole number above 0"


@pytest.mark.parametrize(
    ("model_type", "name", "value", "wanted"),
    [
        ("bart", "encoder_attention_heads", "3", "a whole number above 0"),
        ("bart", "decoder_layers", 2.0, "a whole number above 0"),
        ("bart", "activation_function", ["gelu"], "a string"),
        ("bart", "scale_embedding", "false", "true or false"),
        ("marian", "decoder_vocab_size", 0, "a whole number above 0 or null"),
        ("t5", "layer_norm_epsilon", True, "a number"),
        ("t5", "layer_norm_epsilon", float("nan"), "a number"),
        ("t5", "tie_word_embeddings", 1, "true or false or null"),
        ("whisper", "max_source_positions", "50", "a whole number above 0"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(model_type: str, name: str, value: object, wanted: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        find(model_type).config({name: value})
    assert str(caught.value) == f"config.json has {name}={value!r}; it should be {wanted}"


def test_a_whole_number_is_a_number() -> None:
    assert find("t5").config({"layer_norm_epsilon": 1, "num_decoder_layers": None}).layer_norm_epsilon == 1


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, "\ufeff{}"])
def test_a_broken_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        generation_fields(tmp_path)


LAYERS: Mapping[str, Any] = {
    f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
}
NAMED: tuple[dict[str, int | None], ...] = ({}, {"decoder_start_token_id": None}, {"decoder_start_token_id": 5})
BEGUN: tuple[dict[str, int | None], ...] = ({}, {"bos_token_id": None}, {"bos_token_id": 7})


@pytest.mark.parametrize("generation", [None, *({**start, **bos} for start in NAMED for bos in BEGUN)])
@pytest.mark.parametrize("config", [{**start, **bos} for start in NAMED for bos in BEGUN])
def test_decoding_starts_where_transformers_starts(
    config: dict[str, int | None], generation: dict[str, int | None] | None, tmp_path: Path
) -> None:
    """A field that is absent or null in generation_config.json is not looked for in config.json."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bart", **config}))
    if generation is None:
        theirs = GenerationConfig.from_pretrained(tmp_path, config_file_name="config.json", _from_model_config=True)
    else:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        theirs = GenerationConfig.from_pretrained(tmp_path)
    ours, oracle = start_token(generation_fields(tmp_path)), _oracle()
    refusal = pytest.raises(ValueError, match="`decoder_start_token_id` or `bos_token_id` has to be defined")
    with refusal if ours is None else nullcontext():
        oracle._prepare_special_tokens(theirs, device="cpu")
        start = theirs._decoder_start_token_tensor
        assert start is not None
        assert start.item() == ours


@cache
def _oracle() -> Any:
    return BartForConditionalGeneration(BartConfig(vocab_size=8, d_model=8, max_position_embeddings=8, **LAYERS))


def test_t5s_unused_table_is_dropped_and_strange_names_are_kept() -> None:
    assert rename("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight") is None
    strange = (
        "adapter.weight",
        "encoder.block.0.layer.0.SelfAttention.lora.weight",
        "encoder.block.0.layer.7.layer_norm.weight",
    )
    assert [rename(name) for name in strange] == list(strange)
