"""What a checkpoint's generation config asks for, and what of it is refused."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from transduce.core.params import NUMBERS
from transduce.errors import ConfigError
from transduce.frontend.generation_config import HARMLESS, MISSING, MISSING_WHEN_SAMPLING, Defaults, load


def test_fields_are_read() -> None:
    defaults = load(
        {
            "bos_token_id": 0,
            "decoder_start_token_id": 2,
            "eos_token_id": [2, 3],
            "forced_bos_token_id": 0,
            "forced_eos_token_id": 2,
            "bad_words_ids": [[4], [5, 6]],
            "stop_strings": "end",
            "lang_to_id": {"<|en|>": 7, "<|de|>": 8},
            "language": "<|de|>",
            "temperature": 1,
            "encoder_no_repeat_ngram_size": 3,
            "renormalize_logits": True,
        },
        {"eos_token_id": 9},
    )
    assert defaults == Defaults(
        decoder_start_token_id=2,
        eos=(2, 3),
        forced_bos=0,
        forced_eos=(2,),
        bad_words=((4,), (5, 6)),
        stop_strings=("end",),
        languages={"en": 7, "de": 8},
        language="de",
        temperature=1,
        encoder_no_repeat_ngram_size=3,
        renormalize_logits=True,
    )


def test_decoding_starts_from_bos_where_no_start_is_named() -> None:
    assert load({"bos_token_id": 5}, {}).decoder_start_token_id == 5
    assert load({"bos_token_id": 5, "decoder_start_token_id": 0}, {}).decoder_start_token_id == 0


@pytest.mark.parametrize(
    "config",
    [
        {"max_length": 142, "min_length": 56, "no_repeat_ngram_size": 3, "forced_eos_token_id": 2, "num_beams": 4},
        {"eos_token_id": 1, "decoder_start_token_id": 0, "suppress_tokens": [1, 2], "architectures": ["Bart"]},
        {"bos_token_id": 0, "force_bos_token_to_be_generated": True, "d_model": 64},
    ],
)
def test_without_a_file_config_json_counts_as_in_transformers(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bart", **config}))
    theirs = GenerationConfig.from_pretrained(tmp_path, config_file_name="config.json", _from_model_config=True)
    ours = load(None, config)
    assert ours.max_length == theirs.max_length
    assert ours.min_length == theirs.min_length
    assert ours.no_repeat_ngram_size == theirs.no_repeat_ngram_size
    assert ours.num_beams == (theirs.num_beams or 1)
    assert ours.forced_bos == theirs.forced_bos_token_id
    assert ours.forced_eos == (() if theirs.forced_eos_token_id is None else (theirs.forced_eos_token_id,))
    assert ours.eos == (() if theirs.eos_token_id is None else (theirs.eos_token_id,))
    assert list(ours.suppress_tokens) == (theirs.suppress_tokens or [])


def test_every_field_of_transformers_is_decided_on(caplog: pytest.LogCaptureFixture) -> None:
    """A field nobody decided on would be ignored with a warning."""
    theirs = dict.fromkeys(GenerationConfig().to_dict())
    with caplog.at_level(logging.WARNING):
        load(theirs, {})
    assert caplog.messages == []


def test_a_field_is_decided_on_once() -> None:
    assert not set(HARMLESS.split()) & (MISSING.keys() | MISSING_WHEN_SAMPLING.keys())


def test_an_unknown_field_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load({"eos_token_id": 1, "frobnicate": 3}, {})
    assert len(caplog.messages) == 1
    assert "frobnicate=3" in caplog.messages[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_repetition_penalty", 1.5),
        ("guidance_scale", 2.0),
        ("penalty_alpha", 0.6),
        ("sequence_bias", [[[1], 2.0]]),
        ("exponential_decay_length_penalty", [5, 1.1]),
        ("force_words_ids", [[1]]),
        ("constraints", [{}]),
        ("num_beam_groups", 2),
        ("diversity_penalty", 0.5),
        ("watermarking_config", {"bias": 2.0}),
        ("max_time", 3.0),
    ],
)
def test_a_field_that_cannot_be_followed_is_an_error_that_names_it(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        load({name: value}, {})
    with pytest.raises(ConfigError, match=name):
        load(None, {name: value})


@pytest.mark.parametrize(
    "values", [{"encoder_repetition_penalty": 1.0}, {"penalty_alpha": None}, {"guidance_scale": 1}]
)
def test_a_field_that_asks_for_nothing_is_accepted(values: dict[str, Any]) -> None:
    assert load(values, {}) == Defaults()


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("max_length", "long", "a whole number"),
        ("do_sample", 1, "true or false"),
        ("top_p", "0.5", "a number"),
        ("top_k", True, "a whole number"),
        ("eos_token_id", "</s>", "a whole number or a list"),
        ("stop_strings", [1], "a non-empty string or a list"),
        ("lang_to_id", [], "a map of token ids"),
        ("early_stopping", "always", 'true, false or "never"'),
        ("early_stopping", 1, 'true, false or "never"'),
    ],
)
def test_a_field_of_the_wrong_type_is_an_error_that_names_it(name: str, value: object, wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=.*{wanted}"):
        load({name: value}, {})


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("temperature", -1.0, str(NUMBERS["temperature"])),
        ("temperature", float("nan"), str(NUMBERS["temperature"])),
        ("temperature", float("inf"), str(NUMBERS["temperature"])),
        ("min_p", 2, "a number in [0, 1]"),
        ("top_p", 0, "a number in (0, 1]"),
        ("top_p", -1.0, "a number in (0, 1]"),
        ("top_p", 5.0, "a number in (0, 1]"),
        ("top_k", -2, "a whole number >= -1"),
        ("repetition_penalty", float("nan"), str(NUMBERS["repetition_penalty"])),
        ("repetition_penalty", float("inf"), str(NUMBERS["repetition_penalty"])),
        ("repetition_penalty", 0, str(NUMBERS["repetition_penalty"])),
        ("no_repeat_ngram_size", -1, "a whole number >= 0"),
        ("encoder_no_repeat_ngram_size", 2.0, "a whole number >= 0"),
        ("bad_words_ids", [[]], "a non-empty list of token ids or a list of such"),
        ("bad_words_ids", [["a"]], "a non-empty list of token ids or a list of such"),
        ("bad_words_ids", [[None]], "a non-empty list of token ids or a list of such"),
        ("bad_words_ids", [[[5]]], "a non-empty list of token ids or a list of such"),
        ("bad_words_ids", [[5.0]], "a non-empty list of token ids or a list of such"),
        ("bad_words_ids", [[True]], "a non-empty list of token ids or a list of such"),
        ("forced_eos_token_id", True, "a whole number or a list of such"),
        ("decoder_start_token_id", True, "a whole number >= 0"),
        ("max_new_tokens", 0, "a whole number >= 1"),
        ("max_length", -5, "a whole number >= 1"),
        ("min_length", -1, "a whole number >= 0"),
        ("num_beams", 0, "a whole number >= 1"),
        ("stop_strings", [""], "a non-empty string or a list of such"),
        ("lang_to_id", {"<|en|>": "x"}, "a map of token ids"),
        ("num_return_sequences", 0, "a whole number >= 1"),
        ("length_penalty", 11.0, "a number in [-10, 10]"),
    ],
)
def test_a_value_out_of_range_is_an_error_that_names_it(name: str, value: object, wanted: str) -> None:
    refusal = f" has {name}={value!r}; it should be {wanted}"
    with pytest.raises(ConfigError, match=re.escape("generation_config.json" + refusal)):
        load({name: value}, {})
    with pytest.raises(ConfigError, match="^" + re.escape("config.json" + refusal)):
        load(None, {name: value})


def test_sampling_needs_a_temperature_above_0() -> None:
    assert load({"temperature": 0.0}, {}).temperature == 0
    with pytest.raises(ConfigError, match=r"temperature=0\.0; it should be above 0 with do_sample=true"):
        load({"temperature": 0.0, "do_sample": True}, {})


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_beams_are_read(early_stopping: bool | str) -> None:
    config = {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 2, "early_stopping": early_stopping}
    expected = Defaults(num_beams=4, num_return_sequences=2, length_penalty=2, early_stopping=early_stopping)  # type: ignore[arg-type]
    assert load(config, {}) == load(None, config) == expected


def test_several_samples_are_the_requests_to_ask_for() -> None:
    assert load({"num_return_sequences": 1}, {}) == Defaults()
    refusal = r"num_return_sequences=3 of num_beams=2, which is not followed; remove .* n=3"
    with pytest.raises(ConfigError, match=refusal):
        load({"num_return_sequences": 3, "num_beams": 2}, {})


def test_none_leaves_what_tokens_mean() -> None:
    generation = {
        "bos_token_id": 0,
        "decoder_start_token_id": 2,
        "eos_token_id": [2, 3],
        "lang_to_id": {"<|en|>": 7},
        "language": "<|en|>",
        "forced_bos_token_id": 0,
        "num_beams": 4,
        "max_length": 20,
        "suppress_tokens": [5],
        "temperature": 0.5,
        "do_sample": True,
        "guidance_scale": 3.0,
        "num_return_sequences": 2,
    }
    kept = Defaults(decoder_start_token_id=2, eos=(2, 3), languages={"en": 7}, language="en")
    assert load(generation, {}, "none") == kept
    assert load(None, generation, "none") == kept
    assert load(None, {"bos_token_id": 4, "force_bos_token_to_be_generated": True}, "none") == Defaults(
        decoder_start_token_id=4
    )
