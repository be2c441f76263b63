"""Tiny random checkpoints as folders, complete with tokenizers: what a user points the product at."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_letters
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    MoonshineConfig,
    MoonshineForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    Wav2Vec2FeatureExtractor,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

from tests.models.tiny import _drawn as drawn

LETTERS = "▁" + ascii_letters[:45]
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
SIDES: Mapping[str, Any] = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
}
LANGUAGES = ("en", "de", "fr", "zh")


def text_folder(folder: Path, generation: Mapping[str, Any]) -> Path:
    """A BART over single letters with this generation_config.json."""
    config = BartConfig(vocab_size=len(SPECIAL) + len(LETTERS), max_position_embeddings=64, **SIDES)
    _save(BartForConditionalGeneration(config), folder, generation, seed=3)
    _letters().save_pretrained(folder)
    return folder


def scored_folders(folder: Path) -> dict[str, Path]:
    """Over single letters, one of each family that reads text."""
    vocab, most = len(SPECIAL) + len(LETTERS), 64
    ids: dict[str, Any] = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    t5: dict[str, Any] = {"d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 3}
    models: dict[str, PreTrainedModel] = {
        "bart": BartForConditionalGeneration(BartConfig(vocab_size=vocab, max_position_embeddings=most, **SIDES)),
        "marian": MarianMTModel(MarianConfig(vocab_size=vocab, max_position_embeddings=most, **SIDES, **ids)),
        "t5": T5ForConditionalGeneration(T5Config(vocab_size=vocab, **t5, **ids)),
    }
    for seed, (name, model) in enumerate(models.items()):
        start = model.config.decoder_start_token_id
        # Nothing of the following touches a score.
        asked = {"decoder_start_token_id": start, "eos_token_id": 2, "num_beams": 3, "repetition_penalty": 3.0}
        _save(model, folder / name, asked, seed)
        _letters().save_pretrained(folder / name)
    return {name: folder / name for name in models}


def byte_folder(folder: Path, generation: Mapping[str, Any]) -> Path:
    """A BART over bytes, which spell any text, with this generation_config.json."""
    config = BartConfig(vocab_size=len(SPECIAL) + 256, max_position_embeddings=128, **SIDES)
    _save(BartForConditionalGeneration(config), folder, generation, seed=5)
    _bytes().save_pretrained(folder)
    return folder


def moonshine_folder(folder: Path, seed: int, normalized: bool = False) -> Path:
    """A Moonshine over bytes with positions for 16 tokens, and so for 2.67 s; `seed` draws its weights."""
    ids: dict[str, Any] = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
    config = MoonshineConfig(
        vocab_size=len(SPECIAL) + 256,
        hidden_size=24,
        intermediate_size=40,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=3,
        decoder_num_attention_heads=3,
        max_position_embeddings=16,
        tie_word_embeddings=False,  # or every answer would be one token, again and again
        **ids,
    )
    _save(MoonshineForConditionalGeneration(config), folder, {**ids, "max_length": 16}, seed)
    _bytes().save_pretrained(folder)
    Wav2Vec2FeatureExtractor(do_normalize=normalized).save_pretrained(folder)
    return folder


def whisper_folder(folder: Path, seed: int, **sizes: int) -> Path:
    """A multilingual Whisper over bytes that hears one second; `seed` draws its weights. sizes: of its config.json."""
    tokenizer = _whisper_tokenizer()
    ids: dict[str, int] = tokenizer.get_vocab()
    generation: dict[str, Any] = {
        "bos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "is_multilingual": True,
        "lang_to_id": {f"<|{code}|>": ids[f"<|{code}|>"] for code in LANGUAGES},
        "task_to_id": {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")},
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "max_length": 64,
        "suppress_tokens": [ids[f"<|{name}|>"] for name in ("startoftranscript", "startofprev", "nospeech")],
        "begin_suppress_tokens": [ids["<|endoftext|>"]],
    }
    named = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    usual = {"vocab_size": len(tokenizer), "num_mel_bins": 10, "max_source_positions": 50, "max_target_positions": 64}
    config = WhisperConfig(**{**SIDES, **usual, **{name: generation[name] for name in named}, **sizes})
    _save(WhisperForConditionalGeneration(config), folder, generation, seed)
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=config.num_mel_bins, chunk_length=1).save_pretrained(folder)
    return folder


def with_generation(folder: Path, **fields: Any) -> Path:
    """The folder, its generation_config.json asking for more."""
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return folder


def without_generation(folder: Path, *fields: str) -> Path:
    """The folder, its generation_config.json silent about some."""
    file = folder / "generation_config.json"
    file.write_text(
        json.dumps({name: said for name, said in json.loads(file.read_text()).items() if name not in fields})
    )
    return folder


def _save(model: PreTrainedModel, folder: Path, generation: Mapping[str, Any], seed: int) -> None:
    """Weights are drawn anew, so that answers depend on the source and hold many tokens."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(drawn(name, weight, generator))
    model.generation_config = GenerationConfig()
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(dict(generation)))


def _letters() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE(_numbered([*SPECIAL, *LETTERS]), [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _wrapped(tokenizer)


def _bytes() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE(_numbered([*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]), []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _wrapped(tokenizer)


def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


def _wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )


def _whisper_tokenizer() -> WhisperTokenizer:
    languages = [f"<|{code}|>" for code in LANGUAGES]
    tasks = ["<|translate|>", "<|transcribe|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    special = ["<|startoftranscript|>", *languages, *tasks]
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>", *special]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = WhisperTokenizer(vocab=vocabulary, merges=[], extra_special_tokens=special)
    tokenizer.add_tokens([f"<|{step * 0.02:.2f}|>" for step in range(51)])
    return tokenizer
