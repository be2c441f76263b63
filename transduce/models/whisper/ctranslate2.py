"""Whisper as CTranslate2 stores it: variables by transformers' names, settings as transformers' files have them.

Knows no file.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from transduce.errors import CheckpointError
from transduce.models.base import Converted, Foreign
from transduce.models.whisper.model import MULTILINGUAL_VOCAB

ATTENTION = re.compile(r"(\w+)/layer_(\d+)/(self_attention|attention)/linear_(\d)/(\w+)")

FUSED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "self_attention": (("q_proj", "k_proj", "v_proj"), ("out_proj",)),
    "attention": (("q_proj",), ("k_proj", "v_proj"), ("out_proj",)),
}
"""The projections in each linear layer of an attention, one after another."""

MODULES = {"self_attention": "self_attn", "attention": "encoder_attn"}

NAMES = {
    r"/layer_(\d+)": r"/layers/\1",
    r"/self_attention/": "/self_attn_",
    r"/attention/": "/encoder_attn_",
    r"/ffn/layer_norm": "/final_layer_norm",
    r"/ffn/linear_0": "/fc1",
    r"/ffn/linear_1": "/fc2",
    r"^(encoder|decoder)": r"model/\1",
    r"^model/decoder/projection/": "proj_out/",
    r"/gamma$": "/weight",
    r"/beta$": "/bias",
    r"/embeddings/": "/embed_tokens/",
    r"/position_encodings/encodings": "/embed_positions/weight",
    r"/": ".",
}
"""Patterns of all other names, and what stands for them in transformers'."""

FIRST_TIMESTAMP = 50
"""Steps of 0.02 s within which speech must begin: a number that CTranslate2 has in its code."""


def convert(found: Foreign) -> Converted:
    """A WhisperForConditionalGeneration. Raises CheckpointError for a vocabulary that is not Whisper's."""
    tensors = dict(_tensors(found.variables))
    config = {
        **_sizes(tensors),
        **_side(found.variables, tensors, "encoder"),
        **_side(found.variables, tensors, "decoder"),
    }
    ids = {token: index for index, token in enumerate(found.vocabulary)}
    try:
        return Converted(config, _generation(found.config, config, ids), tensors)
    except KeyError as error:
        raise CheckpointError(f"the vocabulary has no {error}, so it is not Whisper's: give the model's own") from error


def _tensors(variables: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    tied = variables["decoder/projection/weight"] is variables["decoder/embeddings/weight"]
    for name, tensor in variables.items():
        if match := ATTENTION.fullmatch(name):
            yield from _projections(match, tensor)
        elif tensor.dim() and not (tied and name.startswith("decoder/projection/")):
            yield _renamed(name), tensor


def _projections(match: re.Match[str], fused: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Those of a linear layer. A key's bias is left out: it moves all scores of a query alike, and is zero besides."""
    side, layer, attention, linear, leaf = match.groups()
    names = FUSED[attention][int(linear)]
    for name, part in zip(names, fused.chunk(len(names)), strict=True):
        if (name, leaf) != ("k_proj", "bias"):
            yield f"model.{side}.layers.{layer}.{MODULES[attention]}.{name}.{leaf}", part


def _renamed(name: str) -> str:
    for pattern, theirs in NAMES.items():
        name = re.sub(pattern, theirs, name)
    return name


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    vocab, d = tensors["model.decoder.embed_tokens.weight"].shape
    return {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": vocab,
        "d_model": d,
        "num_mel_bins": tensors["model.encoder.conv1.weight"].shape[1],
        "max_source_positions": len(tensors["model.encoder.embed_positions.weight"]),
        "max_target_positions": len(tensors["model.decoder.embed_positions.weight"]),
        "tie_word_embeddings": "proj_out.weight" not in tensors,
    }


def _side(variables: Mapping[str, Tensor], tensors: Mapping[str, Tensor], side: str) -> dict[str, Any]:
    layers = {name.split(".")[3] for name in tensors if name.startswith(f"model.{side}.layers.")}
    return {
        f"{side}_layers": len(layers),
        f"{side}_attention_heads": int(variables[f"{side}/num_heads"]),
        f"{side}_ffn_dim": len(tensors[f"model.{side}.layers.0.fc1.weight"]),
    }


def _generation(said: Mapping[str, Any], config: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    """generation_config.json; languages and tasks are those of a multilingual model alone."""
    start, end = ids["<|startoftranscript|>"], ids["<|endoftext|>"]
    fields = {
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end),
        "decoder_start_token_id": start,
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "max_length": config["max_target_positions"],
        "max_initial_timestamp_index": FIRST_TIMESTAMP,
        "suppress_tokens": said.get("suppress_ids"),
        "begin_suppress_tokens": said.get("suppress_ids_begin"),
        "alignment_heads": said.get("alignment_heads"),
    }
    if config["vocab_size"] < MULTILINGUAL_VOCAB:
        return fields
    names = {index: token for token, index in ids.items()}
    languages = said.get("lang_ids") or range(start + 1, ids["<|translate|>"])
    return {**fields, "lang_to_id": {names[index]: index for index in languages}}
