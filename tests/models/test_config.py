"""Config views: transformers' defaults, and what is refused."""

import dataclasses
import json
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, BartConfig, BartForConditionalGeneration, GenerationConfig, PreTrainedConfig

from tests.models import cases
from tests.models.tiny import Case
from transduce.errors import CheckpointError
from transduce.models import parts
from transduce.models.base import find, known
from transduce.models.config import read_json, start_token
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
    assert {"bart", "marian", "mllama", "moonshine", "t5", "whisper"} <= {*known()}
    with pytest.raises(CheckpointError, match="'gpt2' is not supported; known: bart, "):
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
    (cases.mllama("", {"num_attention_heads": 5}), "text_config's hidden_size 24 gives 5 heads no even number"),
    (cases.mllama("", None, {"attention_heads": 3}), "vision_config's hidden_size 16 gives 3 heads no even number"),
    (cases.mllama("", {"num_key_value_heads": 3}), "not a multiple of num_key_value_heads=3"),
    (cases.mllama("", {"cross_attention_layers": [6]}), "6 among cross_attention_layers; the layers are 0 to 5"),
    (cases.mllama("", {"cross_attention_layers": []}), r"cross_attention_layers=\[\]; some layers should be"),
    (cases.mllama("", {"rope_parameters": {"rope_type": "yarn"}}), "rope_type='yarn'; it should be 'llama3'"),
    (cases.mllama("", None, {"intermediate_layers_indices": [-1]}), "-1 among intermediate_layers_indices"),
    (cases.mllama("", None, {"supported_aspect_ratios": [[1, 1], [2, 3]]}), r"\[2, 3\] among supported_aspect_ratios"),
    (Case("mllama", "", {"text_config": None}), "text_config=None; it should be an object"),
    (Case("vision-encoder-decoder", "", {"encoder": cases.VIT}), "decoder=None; it should be an object"),
    (cases.seeing("", {"model_type": "names"}, cases.TROCR), "encoder with model_type='names', which is not supported"),
    (cases.seeing("", cases.TROCR, cases.TROCR), "encoder with model_type='trocr'"),
    (cases.seeing("", cases.VIT, {"model_type": "../bart"}), r"decoder with model_type='\.\./bart'"),
    (cases.seeing("", {**cases.VIT, "image_size": [12]}, cases.TROCR), r"image_size=\[12\]; it should be a height and"),
    (cases.seeing("", {**cases.VIT, "patch_size": [4, 0]}, cases.TROCR), r"patch_size=\[4, 0\]; it should be a height"),
    (cases.seeing("", {**cases.VIT, "num_attention_heads": 5}, cases.TROCR), "24 is not a multiple of 5 heads"),
    (cases.seeing("", {**cases.SWIN, "num_heads": [2]}, cases.TROCR), r"num_heads=\[2\]; give both for each stage"),
    (cases.seeing("", {**cases.SWIN, "num_heads": [2, 5]}, cases.TROCR), "stage 1's 24 is no multiple of 5 heads"),
    (cases.seeing("", {**cases.SWIN, "window_size": 5}, cases.TROCR), r"grids \[\(7, 11\), \(4, 6\)\]; none may be"),
    (cases.seeing("", {**cases.DONUT_SWIN, "use_absolute_embeddings": True}, cases.TROCR), "no donut-swin can do"),
    (cases.seeing("", cases.VIT, {**cases.BERT, "num_attention_heads": 5}), "hidden_size 24 is not a multiple of 5"),
    (cases.seeing("", cases.VIT, {**cases.TROCR, "decoder_attention_heads": 5}), "24 is not a multiple of 5 heads"),
    (
        cases.seeing("", cases.VIT, {**cases.TROCR, "cross_attention_hidden_size": 12}),
        "cross_attention_hidden_size=12; the encoder's rows are 24 wide",
    ),
)


@pytest.mark.parametrize("part", ["vision", "text"])
def test_absent_fields_of_a_part_have_transformers_defaults(part: str) -> None:
    ours, theirs = getattr(find("mllama").config({}), part), getattr(AutoConfig.for_model("mllama"), f"{part}_config")
    known = {field.name for field in dataclasses.fields(ours)} & set(theirs.to_dict())
    assert len(known) > 8
    assert {name: getattr(ours, name) for name in known} == {name: getattr(theirs, name) for name in known}
    assert part == "vision" or ours.rope_theta == theirs.rope_parameters["rope_theta"]


@pytest.mark.parametrize("model_type", ["vit", "deit", "swin", "donut-swin"])
def test_absent_fields_of_an_image_encoder_have_transformers_defaults(model_type: str) -> None:
    _same_defaults(parts.encoder({"model_type": model_type}).config({}), AutoConfig.for_model(model_type))


@pytest.mark.parametrize("model_type", ["bart", "mbart", "trocr", "bert", "roberta", "xlm-roberta"])
def test_absent_fields_of_a_text_decoder_have_transformers_defaults(model_type: str) -> None:
    _same_defaults(parts.decoder({"model_type": model_type}).config({}), AutoConfig.for_model(model_type))


def _same_defaults(ours: Any, theirs: PreTrainedConfig) -> None:
    known = {field.name for field in dataclasses.fields(ours)} & set(theirs.to_dict())
    assert len(known) > 8
    for name in known:
        value = getattr(theirs, name)
        assert getattr(ours, name) == ([*value] if isinstance(value, tuple) else value), name


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
    spec = find("mllama").spec(find("mllama").config({}))
    assert (spec.vocab_size, spec.target_vocab, spec.source_vocab) == (128256, 128264, 0)
    assert (spec.max_source, spec.feature_shape) == (4 * 1025, (1, 4, 3, 448, 448))
    assert [(group.name, group.layers) for group in spec.groups] == [("self", 32), ("cross", 8)]
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
        read_json(tmp_path / "generation_config.json")


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
    ours, oracle = start_token(config if generation is None else generation), _oracle()
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
