"""Whisper's processor: features as transformers makes them, and the prompt's grammar."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from tests.models.tokenizers import whisper_tokenizer
from transduce.core.request import Attention, Scored
from transduce.errors import CheckpointError, MediaError, RequestError
from transduce.models.base import Spoken, find
from transduce.models.whisper.processor import Prompt, WhisperProcessor, feature_extractor

RATE = 16_000
START, EN, DE, TRANSLATE, TRANSCRIBE, PREVIOUS, PLAIN = 5, 6, 7, 8, 9, 10, 11


def _processor(multilingual: bool = True, language: str | None = None, task: str = "transcribe") -> WhisperProcessor:
    prompt = Prompt(start=START, multilingual=multilingual, language=language, task=task, previous=3, first_timestamp=2)
    return WhisperProcessor(whisper_tokenizer(), WhisperFeatureExtractor(), prompt)


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"language": "en"}, (START, EN, TRANSCRIBE, PLAIN)),
        ({"language": "German", "task": "translate"}, (START, DE, TRANSLATE, PLAIN)),
        ({"language": "<|de|>", "timestamps": True}, (START, DE, TRANSCRIBE)),
        ({"language": "en", "prompt": "the cat"}, (PREVIOUS, 0, 1, START, EN, TRANSCRIBE, PLAIN)),
        ({"language": "en", "prompt": "cat the cat the sat"}, (PREVIOUS, 1, 0, 2, START, EN, TRANSCRIBE, PLAIN)),
        (
            {"language": "en", "prompt": "the " * 1000 + "cat the sat"},
            (PREVIOUS, 1, 0, 2, START, EN, TRANSCRIBE, PLAIN),
        ),
        ({"language": "en", "prompt": "", "task": None}, (START, EN, TRANSCRIBE, PLAIN)),
        ({"language": "en", "previous": (12, 0, 13)}, (PREVIOUS, 12, 0, 13, START, EN, TRANSCRIBE, PLAIN)),
        (
            {"language": "en", "prompt": "the cat", "previous": (2, 13)},
            (PREVIOUS, 1, 2, 13, START, EN, TRANSCRIBE, PLAIN),
        ),
        ({"language": "en", "hotwords": "sat"}, (PREVIOUS, 2, START, EN, TRANSCRIBE, PLAIN)),
        (
            {"language": "en", "hotwords": "sat", "prompt": "the cat", "previous": (12,)},
            (PREVIOUS, 2, 1, 12, START, EN, TRANSCRIBE, PLAIN),
        ),
        (
            {"language": "en", "hotwords": "cat sat cat", "prompt": "the"},
            (PREVIOUS, 1, 2, 1, START, EN, TRANSCRIBE, PLAIN),
        ),
        ({"language": "en", "hotwords": "sat", "prefix": (0, 1)}, (START, EN, TRANSCRIBE, PLAIN, 0, 1)),
        ({"language": "en", "prefix": (0, 1), "timestamps": True}, (START, EN, TRANSCRIBE, PLAIN + 1, 0, 1)),
        ({"language": "en", "prefix": ()}, (START, EN, TRANSCRIBE, PLAIN)),
    ],
)
def test_options_become_the_prefix(options: Mapping[str, object], ids: tuple[int, ...]) -> None:
    assert _processor().decoder_ids(None, options) == ids
    assert _processor().decoder_ids("", options) == ids


def test_timestamps_are_ruled_from_the_prefix_on() -> None:
    options = {"language": "en", "prefix": (0, 1), "timestamps": True}
    (rule,) = _processor().rules(_processor().decoder_ids(None, options), options)
    assert rule.args[0] == 3


def test_silence_is_probed_after_the_start_of_the_transcript() -> None:
    """By the token in front of <|notimestamps|>, which has no name here."""
    for options, start in (({"no_speech": True}, 0), ({"no_speech": True, "prompt": "the cat"}, 3)):
        ids = _processor().decoder_ids(None, {"language": "en", **options})
        assert _processor().probe(ids, options) == Scored(start + 1, targets=(PLAIN - 1,))
    assert _processor().probe((START, PLAIN), {}) is None


def test_a_spoken_text_stands_where_it_would_have_been_written() -> None:
    """Before the end token, which is computed too, as much of it as there are positions for."""
    for count, kept in ((2, 2), (500, 448 - 4 - 1)):
        options = {"language": "en", "spoken": Spoken((0, 1) * (count // 2), 9)}
        ids = _processor().decoder_ids(None, options)
        text = ((0, 1) * count)[:kept]
        assert ids == (START, EN, TRANSCRIBE, PLAIN, *text, 4, 4)
        assert _processor().probe(ids, options) == Scored(4, targets=text, among=4, attention=Attention((), 9))


def test_the_checkpoint_says_what_a_request_does_not() -> None:
    assert _processor(language="de", task="translate").decoder_ids(None, {}) == (START, DE, TRANSLATE, PLAIN)


def test_english_only_models_take_no_language_or_task_token() -> None:
    processor = _processor(multilingual=False)
    assert processor.decoder_ids(None, {}) == (START, PLAIN)
    assert processor.decoder_ids(None, {"language": "English", "task": "transcribe"}) == (START, PLAIN)
    assert processor.decoder_ids(None, {"timestamps": True, "prompt": "sat"}) == (PREVIOUS, 2, START)


@pytest.mark.parametrize(
    ("multilingual", "options", "message"),
    [
        (False, {"language": "de"}, "English-only; leave language out"),
        (False, {"task": "translate"}, "English-only and can only transcribe"),
        (False, {"task": "sing"}, "'sing' is unknown"),
        (True, {}, r"name the audio's, such as language='en' or a decoder prompt of <\|startoftranscript\|><\|en\|>"),
        (True, {"language": "elvish"}, "'elvish' is unknown"),
        (True, {"language": "french"}, "'french' is unknown"),
        (True, {"language": "en", "timestamps": "word"}, "timestamps 'word'"),
        (True, {"language": "en", "speed": 2}, "unknown option speed"),
        (True, {"language": "en", "prompt": "the <|de|>"}, "prompt .* holds a special token"),
        (True, {"language": "en", "hotwords": "the <|de|>"}, "hotwords .* holds a special token"),
        (True, {"language": "en", "prefix": (0, DE)}, "prefix 'the <.*' holds a special token"),
        (True, {"language": "en", "prompt": "the \0"}, r"prompt 'the \\x00' holds NUL"),
        (True, {"language": "en", "prefix": (0, 1, 0, 1)}, "prefix has 4 tokens, and the decoder has room for 3"),
        (True, {"language": "en", "hotwords": "cat the cat the"}, "hotwords has 4 tokens"),
    ],
)
def test_what_cannot_be_is_refused(multilingual: bool, options: Mapping[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        _processor(multilingual).decoder_ids(None, options)


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("<|startoftranscript|><|de|> cat", (START, DE, 1)),
        ("the cat", (START, 0, 1)),
        ([START, EN], (START, EN)),
        ([PREVIOUS, 2, START, EN], (PREVIOUS, 2, START, EN)),
    ],
)
def test_a_prompt_is_the_decoders_own(prompt: str | list[int], ids: tuple[int, ...]) -> None:
    assert _processor().decoder_ids(prompt, {}) == ids
    with pytest.raises(RequestError, match="language"):
        _processor().decoder_ids(prompt, {"language": "en"})


def test_without_a_tokenizer_ids_still_work() -> None:
    processor = WhisperProcessor(None, WhisperFeatureExtractor(), _processor().prompt)
    assert processor.decoder_ids([EN], {}) == (START, EN)
    with pytest.raises(RequestError, match="no tokenizer"):
        processor.decoder_ids(None, {"language": "en"})


def test_features_are_transformers_own() -> None:
    samples = np.random.default_rng(0).standard_normal(2 * RATE).astype(np.float32) / 10
    item = _processor().item((samples, RATE))
    expected = WhisperFeatureExtractor()(samples, sampling_rate=RATE, return_tensors="np")["input_features"][0]
    np.testing.assert_allclose(item.data, expected, rtol=0, atol=2e-6)
    assert item.data.dtype == np.float32
    assert (item.rows, item.cost) == (1500, 1500)


def test_a_whole_window_fits_and_more_does_not() -> None:
    assert _processor().item((np.zeros(30 * RATE, np.float32), RATE)).rows == 1500
    with pytest.raises(MediaError, match=r"audio of 30\.5 s .* 30 s .*not transcribed in one go yet; .*at most 30 s"):
        _processor().item((np.zeros(61 * RATE // 2, np.float32), RATE))
    with pytest.raises(MediaError, match=r"audio of 30\.0000625 s is longer than the model's 30 s"):
        _processor().item((np.zeros(30 * RATE + 1, np.float32), RATE))


def test_no_audio_is_refused() -> None:
    with pytest.raises(MediaError):
        _processor().item((np.zeros(0, np.float32), RATE))
    with pytest.raises(RequestError, match="multi_modal_data"):
        _processor().source_ids("some text")


def test_an_extractor_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    assert feature_extractor(tmp_path, mels=128, rows=1500).feature_size == 128
    WhisperFeatureExtractor().save_pretrained(tmp_path)
    assert feature_extractor(tmp_path, mels=80, rows=1500).feature_size == 80
    with pytest.raises(CheckpointError, match=r"80 x 3000 features, config\.json asks for 128 x 3000"):
        feature_extractor(tmp_path, mels=128, rows=1500)


@pytest.mark.parametrize(
    ("config", "generation", "multilingual"),
    [
        ({"vocab_size": 51864}, {}, False),
        ({"vocab_size": 51865}, {}, True),
        ({"vocab_size": 51865}, {"is_multilingual": False}, False),
    ],
)
def test_a_checkpoint_says_whether_it_is_multilingual(
    config: dict[str, Any], generation: dict[str, Any], multilingual: bool, tmp_path: Path
) -> None:
    family, asked = find("whisper"), {"decoder_start_token_id": START, **generation}
    processor = family.processor(tmp_path, family.config(config), asked, whisper_tokenizer())
    assert isinstance(processor, WhisperProcessor)
    assert processor.prompt.multilingual == multilingual
    assert processor.prompt.start == START
    assert processor.prompt.previous == 223


@pytest.mark.parametrize(
    ("named", "heads"),
    [
        (None, ((1, 0), (1, 1), (2, 0), (2, 1))),
        ([[2, 1], [0, 0]], ((0, 0), (2, 1))),
        ([[31, 1], [0, 0]], ((1, 0), (1, 1), (2, 0), (2, 1))),
        ([3, 0], None),
    ],
)
def test_a_checkpoint_says_which_heads_follow_speech(named: object, heads: object, tmp_path: Path) -> None:
    """Else those of the later half of the layers do; so too where a distilled model names its teacher's."""
    family, asked = find("whisper"), {"alignment_heads": named}
    config = family.config({"decoder_layers": 3, "decoder_attention_heads": 2})
    if heads is None:
        with pytest.raises(CheckpointError, match=r"alignment_heads=\[3, 0\]; give \[layer, head\] pairs"):
            family.processor(tmp_path, config, asked, None)
    else:
        processor = family.processor(tmp_path, config, asked, None)
        assert isinstance(processor, WhisperProcessor)
        assert processor.prompt.heads == heads


@pytest.mark.parametrize("text", ["{", "[]", '{"feature_size": "80"}', '{"hop_length": 0}', '{"feature_size": null}'])
def test_a_broken_preprocessor_config_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text)
    family = find("whisper")
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json"):
        family.processor(tmp_path, family.config({}), {}, None)


@pytest.mark.parametrize(
    "fields", [{"is_multilingual": "yes"}, {"task": 5}, {"language": 3}, {"max_initial_timestamp_index": "x"}]
)
def test_a_direction_of_the_wrong_type_is_named(fields: dict[str, object], tmp_path: Path) -> None:
    family = find("whisper")
    with pytest.raises(CheckpointError, match=rf"generation_config\.json has {next(iter(fields))}="):
        family.processor(tmp_path, family.config({}), fields, None)
