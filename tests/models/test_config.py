"""Config views: transformers' defaults, and what is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from tests.models import cases
from tests.models.tiny import Case
from transduce.errors import CheckpointError
from transduce.models.base import find, known
from transduce.models.config import generation_config, token_ids
from transduce.models.t5 import rename


@pytest.mark.parametrize("model_type", ["bart", "marian", "t5", "whisper"])
def test_absent_fields_have_transformers_defaults(model_type: str) -> None:
    ours, theirs = find(model_type).config({}), AutoConfig.for_model(model_type)
    resolved = {"tie_word_embeddings", "scale_decoder_outputs", "num_decoder_layers", "decoder_vocab_size"}
    for field in dataclasses.fields(ours):
        if field.name not in resolved:
            default = getattr(theirs, field.name, None)
            assert getattr(ours, field.name) == default, field.name


def test_families_are_found() -> None:
    assert known() == ["bart", "marian", "t5", "whisper"]
    with pytest.raises(CheckpointError, match="'gpt2' is not supported; known: bart, marian"):
        find("gpt2")


REFUSED: tuple[tuple[Case, str], ...] = (
    (cases.bart("", {"activation_function": "tanh"}), "'tanh' is not supported"),
    (cases.bart("", {"decoder_attention_heads": 5}), "24 is not a multiple of 5 heads"),
    (cases.t5("", {"feed_forward_proj": "gated-tanh"}), "'tanh' is not supported"),
    (cases.t5("", {"feed_forward_proj": "doubly-gated-gelu"}), "doubly-gated-gelu"),
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


@pytest.mark.parametrize(("ids", "expected"), [(None, ()), (2, (2,)), ([2, 3], (2, 3)), (0, (0,))])
def test_token_ids(ids: Any, expected: tuple[int, ...]) -> None:
    assert token_ids(ids) == expected


def test_a_broken_generation_config_is_named(tmp_path: Path) -> None:
    assert generation_config(tmp_path) == {}
    (tmp_path / "generation_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        generation_config(tmp_path)


def test_t5s_unused_table_is_dropped_and_strange_names_are_kept() -> None:
    assert rename("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight") is None
    strange = (
        "adapter.weight",
        "encoder.block.0.layer.0.SelfAttention.lora.weight",
        "encoder.block.0.layer.7.layer_norm.weight",
    )
    assert [rename(name) for name in strange] == list(strange)
