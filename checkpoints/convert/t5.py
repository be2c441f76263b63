"""traceforge's flan-t5-small: its int8 ONNX export, dequantized to float32.

The exporter names each MatMul after the module it came from, which is how the anonymous weights get theirs.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from checkpoints.convert.folder import Array, Json, ReadMember, layers, rename, write
from checkpoints.errors import CheckpointError

if TYPE_CHECKING:
    from onnx import GraphProto

SOURCE = "traceforge_title_model/data/span"
IDS = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
SPECIAL = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
TOKENIZER_CONFIG = {
    "tokenizer_class": "T5Tokenizer",
    **SPECIAL,
    "extra_ids": 100,
    "additional_special_tokens": [f"<extra_id_{number}>" for number in range(100)],
    "model_max_length": 512,
    "clean_up_tokenization_spaces": False,
}
RENAMES = {
    r"^enc\.": "encoder.",
    r"^m\.": "",
    r"^encoder\.embed_tokens": "shared",
    r"^decoder\.shared": "shared",
}


def convert(read: ReadMember, folder: Path) -> None:
    """Write traceforge's ONNX pair as a T5ForConditionalGeneration folder.

    Raises CheckpointError where onnx is not installed.
    """
    tensors = {
        rename(name, RENAMES): tensor
        for part in ("encoder", "decoder")
        for name, tensor in _tensors(_graph(read(f"{SOURCE}/{part}.onnx"))).items()
    }
    tokenizer = json.loads(read(f"{SOURCE}/tokenizer.json"))
    files = {
        "config.json": _config(tensors),
        "generation_config.json": IDS,
        "tokenizer.json": {**tokenizer, "truncation": None, "padding": None},
        "tokenizer_config.json": TOKENIZER_CONFIG,
    }
    write(folder, tensors, files)


def _graph(model: bytes) -> "GraphProto":
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise CheckpointError("converting this checkpoint needs onnx: pip install '.[checkpoints]'") from error
    return onnx.load_model_from_string(model).graph


def _tensors(graph: "GraphProto") -> dict[str, Array]:
    """The graph's weights by the exported module's names, linear ones turned to [out, in]."""
    stored = _dequantized(graph)
    tensors = {name: tensor for name, tensor in stored.items() if name.endswith(".weight")}
    for node in graph.node:
        weight = node.input[1].removesuffix("_quantized") if node.op_type.startswith("MatMul") else ""
        if weight in stored:
            module = re.sub(r"/MatMul(_quant)?$", "", node.name).strip("/").replace("/", ".")
            tensors[f"{module}.weight"] = stored[weight].T
    return tensors


def _dequantized(graph: "GraphProto") -> dict[str, Array]:
    """The initializers as floats; a quantized one is (value - zero point) * scale."""
    from onnx.numpy_helper import to_array

    raw = {tensor.name: to_array(tensor) for tensor in graph.initializer}
    whole = {name: array for name, array in raw.items() if array.dtype == np.float32}
    for name in (name.removesuffix("_quantized") for name in raw if name.endswith("_quantized")):
        quantized, zero = raw[f"{name}_quantized"], raw[f"{name}_zero_point"]
        whole[name] = (quantized.astype(np.float32) - zero.astype(np.float32)) * raw[f"{name}_scale"]
    return whole


def _config(tensors: Mapping[str, Array]) -> Json:
    vocab_size, width = tensors["shared.weight"].shape
    buckets, heads = tensors["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"].shape
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": vocab_size,
        "d_model": width,
        "d_kv": len(tensors["encoder.block.0.layer.0.SelfAttention.q.weight"]) // heads,
        "d_ff": len(tensors["encoder.block.0.layer.1.DenseReluDense.wi_0.weight"]),
        "num_heads": heads,
        "num_layers": layers(tensors, "encoder.block."),
        "num_decoder_layers": layers(tensors, "decoder.block."),
        "feed_forward_proj": "gated-gelu",
        "layer_norm_epsilon": 1e-6,
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": 128,
        "tie_word_embeddings": False,
        "n_positions": 512,
        "dtype": "float32",
        **IDS,
    }
