"""ANNalog's SMILES-to-SMILES transformer, which is MarianMT's layout but for its positions.

Those are learned, and so stored as `embed_positions.weight` where Marian computes sinusoids.
"""

import io
import pickle
from pathlib import Path
from typing import Never

from tokenizers import decoders

from checkpoints.convert import words
from checkpoints.convert.folder import Array, Json, ReadMember, layers, rename, write

SPECIAL = {"bos_token": "<sos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
SYMBOLS = r"\[[^\]]*\]|%\d{2}|Br|Cl|."
RENAMES = {
    r"^decoder\.fc_out\.weight": "lm_head.weight",
    r"^decoder\.fc_out\.bias": "final_logits_bias",
    r"^(encoder|decoder)\.": r"model.\1.",
    r"tok_embedding": "embed_tokens",
    r"pos_embedding": "embed_positions",
    r"self_attention\.": "self_attn.",
    r"encoder_attention\.": "encoder_attn.",
    r"fc_([qkv])\.": r"\1_proj.",
    r"fc_o\.": "out_proj.",
    r"enc_attn_layer_norm": "encoder_attn_layer_norm",
    r"ff_layer_norm": "final_layer_norm",
    r"positionwise_feedforward\.fc_": "fc",
}


class _PlainUnpickler(pickle.Unpickler):
    """Reads dicts, lists, strings and numbers, and refuses everything that would run code."""

    def find_class(self, module: str, name: str) -> Never:
        raise pickle.UnpicklingError(f"refused to load {module}.{name}")


def convert(read: ReadMember, folder: Path) -> None:
    """Write ANNalog's state dict and vocabulary as a MarianMTModel folder."""
    tensors = _tensors(read("annalog/ckpt_and_vocab/Lev_extended.pt"))
    vocabulary = _PlainUnpickler(io.BytesIO(read("annalog/ckpt_and_vocab/stereo_experiment_vocab_ttf.pkl"))).load()
    symbols: list[str] = vocabulary["itos"]
    ids = {f"{name}_id": symbols.index(SPECIAL[name]) for name in ("bos_token", "eos_token", "pad_token")}
    ids["decoder_start_token_id"] = ids["bos_token_id"]
    length = len(tensors["model.encoder.embed_positions.weight"])
    never = [[symbols.index(SPECIAL[name])] for name in ("pad_token", "unk_token")]
    files = {
        "config.json": {**_config(tensors), **ids},
        "generation_config.json": {**ids, "max_length": length, "num_beams": 1, "bad_words_ids": never},
        "tokenizer.json": words.tokenizer(symbols, SYMBOLS, SPECIAL, decoders.Fuse()),
        "tokenizer_config.json": words.tokenizer_config(SPECIAL, length),
    }
    write(folder, tensors, files)


def _tensors(checkpoint: bytes) -> dict[str, Array]:
    import torch

    state = torch.load(io.BytesIO(checkpoint), map_location="cpu", weights_only=True)
    tensors = {rename(name, RENAMES): tensor.numpy() for name, tensor in state.items()}
    tensors["final_logits_bias"] = tensors["final_logits_bias"][None]
    return tensors


def _config(tensors: dict[str, Array]) -> Json:
    vocab_size, width = tensors["model.encoder.embed_tokens.weight"].shape
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "activation_function": "relu",
        "vocab_size": vocab_size,
        "decoder_vocab_size": vocab_size,
        "d_model": width,
        "max_position_embeddings": len(tensors["model.encoder.embed_positions.weight"]),
        "encoder_layers": layers(tensors, "model.encoder.layers."),
        "decoder_layers": layers(tensors, "model.decoder.layers."),
        "num_hidden_layers": layers(tensors, "model.encoder.layers."),
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": len(tensors["model.encoder.layers.0.fc1.weight"]),
        "decoder_ffn_dim": len(tensors["model.decoder.layers.0.fc1.weight"]),
        "scale_embedding": True,
        "static_position_embeddings": False,
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }
