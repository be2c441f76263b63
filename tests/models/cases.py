"""The configurations every family is tested in: each flag that matters, in both positions."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import torch

from tests.models.small import SMALL
from tests.models.tiny import Case, State, only, without

bart = partial(Case, "bart")
t5 = partial(Case, "t5")
marian = partial(Case, "marian")
whisper = partial(Case, "whisper")
moonshine = partial(Case, "moonshine")


def mllama(
    name: str, text: Mapping[str, Any] | None = None, vision: Mapping[str, Any] | None = None, **flags: Any
) -> Case:
    """text, vision: what differs in the two parts' configs."""
    changed = {"text_config": text or {}, "vision_config": vision or {}}
    parts = {part: {**SMALL["mllama"][part], **change} for part, change in changed.items()}
    return Case("mllama", name, parts | flags)


def florence2(
    name: str, text: Mapping[str, Any] | None = None, vision: Mapping[str, Any] | None = None, **flags: Any
) -> Case:
    """text, vision: what differs in the two parts' configs."""
    changed = {"text_config": text or {}, "vision_config": vision or {}}
    parts = {part: {**SMALL["florence2"][part], **change} for part, change in changed.items()}
    return Case("florence2", name, parts | flags)


PATCHES = {"image_size": 12, "patch_size": 4, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
VIT: Mapping[str, Any] = {"model_type": "vit", "hidden_size": 24, **PATCHES}
DEIT: Mapping[str, Any] = {**VIT, "model_type": "deit"}
SWIN: Mapping[str, Any] = {
    "model_type": "swin",
    "image_size": [14, 22],
    "patch_size": 2,
    "embed_dim": 12,
    "depths": [2, 2],
    "num_heads": [2, 3],
    "window_size": 3,
    "mlp_ratio": 2.0,
}
DONUT_SWIN: Mapping[str, Any] = {**SWIN, "model_type": "donut-swin"}

TROCR: Mapping[str, Any] = {
    "model_type": "trocr",
    "vocab_size": 50,
    "d_model": 24,
    "decoder_layers": 2,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 32,
}
BART_DECODER: Mapping[str, Any] = {**TROCR, "model_type": "bart"}
MBART_DECODER: Mapping[str, Any] = {**TROCR, "model_type": "mbart"}
BERT: Mapping[str, Any] = {
    "model_type": "bert",
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 34,
    "is_decoder": True,
    "add_cross_attention": True,
}
ROBERTA: Mapping[str, Any] = {**BERT, "model_type": "roberta"}


def seeing(
    name: str, encoder: Mapping[str, Any], decoder: Mapping[str, Any], untie: tuple[str, ...] = (), **flags: Any
) -> Case:
    """A VisionEncoderDecoder of two parts."""
    return Case("vision-encoder-decoder", name, {"encoder": encoder, "decoder": decoder, **flags}, untie)


OLDER = (
    (r"^encoder\.layers", "encoder.encoder.layer"),
    (r"(?<=attention\.)o_proj", "output.dense"),
    (r"(?<=blocks\.\d\.attention\.)(?=[qkv]_proj)", "self."),
    (r"(?<=attention\.)(?=[qkv]_proj)", "attention."),
    (r"\bq_proj", "query"),
    (r"\bk_proj", "key"),
    (r"\bv_proj", "value"),
    (r"relative_position_bias\.relative", "self.relative"),
    (r"mlp\.fc1", "intermediate.dense"),
    (r"mlp\.fc2", "output.dense"),
)
BUFFERS = ("decoder.model.decoder.embed_positions._float_tensor", "decoder.roberta.embeddings.position_ids")


def _older(state: State) -> State:
    """Images' encoders named as before transformers 5, and what such files hold besides."""

    def named(name: str) -> str:
        return reduce(lambda made, change: re.sub(change[0], change[1], made), OLDER, name)

    renamed = {named(name) if name.startswith("encoder") else name: tensor for name, tensor in state.items()}
    return renamed | {name: torch.zeros(1) for name in BUFFERS}


SINES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")

THREE_TABLES = {
    "share_encoder_decoder_embeddings": False,
    "decoder_vocab_size": 43,
    "tie_word_embeddings": False,
}

BART = (
    bart("plain"),
    bart("scaled embedding", {"scale_embedding": True}),
    bart("relu", {"activation_function": "relu"}),
    bart("gelu_new", {"activation_function": "gelu_new"}),
    bart("swish", {"activation_function": "swish"}),
    bart("deep encoder", {"encoder_layers": 3, "decoder_layers": 1}),
    bart("deep decoder", {"encoder_layers": 1, "decoder_layers": 3}),
    bart("other heads", {"encoder_attention_heads": 4, "decoder_attention_heads": 2}),
    bart("odd sizes", {"d_model": 27, "encoder_ffn_dim": 37, "decoder_ffn_dim": 41, "vocab_size": 53}),
    bart("untied", {"tie_word_embeddings": False}, untie=("lm_head",)),
    bart("tied, but the head differs", untie=("lm_head",)),
    bart("no logits bias", initial=("final_logits_bias",), stored=without("final_logits_bias")),
    bart("table named as the encoder's", stored=only("model.encoder.embed_tokens.weight")),
    bart("table named as the head", stored=only("lm_head.weight")),
    bart(
        "table under every name",
        stored=only(
            "model.shared.weight",
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
            "lm_head.weight",
        ),
    ),
)

T5 = (
    t5("1.0"),
    t5("1.0, tied by name", {"tie_word_embeddings": True}),
    t5("1.1", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, untie=("lm_head",)),
    t5(
        "1.1 as transformers 5 saves it",
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": True, "scale_decoder_outputs": False},
        untie=("lm_head",),
    ),
    t5("untied in name only", {"tie_word_embeddings": False}),
    t5("gated silu", {"feed_forward_proj": "gated-silu"}),
    t5("exact gelu", {"feed_forward_proj": "gelu"}),
    t5("wide heads", {"d_kv": 12, "num_heads": 5}),
    t5("deep decoder", {"num_layers": 1, "num_decoder_layers": 3}),
    t5("deep encoder", {"num_layers": 3, "num_decoder_layers": 1}),
    t5("default buckets", {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}),
    t5("coarse epsilon", {"layer_norm_epsilon": 1e-2}),
    t5("table under old names", stored=only("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")),
    t5("table named as the head", stored=only("lm_head.weight")),
)

MARIAN = (
    marian("sines", initial=SINES, stored=without(*SINES)),
    marian("sines in an odd width", {"d_model": 27}, initial=SINES, stored=without(*SINES)),
    marian("sines, stored", initial=SINES),
    marian("learned positions"),
    marian("scaled embedding", {"scale_embedding": True}, initial=SINES, stored=without(*SINES)),
    marian("relu", {"activation_function": "relu"}),
    marian("two vocabularies", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 43}),
    marian("two vocabularies, untied", THREE_TABLES),
    marian("two tables", {"share_encoder_decoder_embeddings": False}),
    marian("untied head", {"tie_word_embeddings": False}),
    marian("deep encoder", {"encoder_layers": 3, "decoder_layers": 1}),
    marian("no logits bias", initial=("final_logits_bias",), stored=without("final_logits_bias")),
    marian("table under old names", stored=only("model.encoder.embed_tokens.weight", "lm_head.weight")),
)

WHISPER = (
    whisper("plain"),
    whisper("128 mels", {"num_mel_bins": 128}),
    whisper("relu", {"activation_function": "relu"}),
    whisper("distilled", {"encoder_layers": 3, "decoder_layers": 1}),
    whisper("other heads", {"encoder_attention_heads": 4, "decoder_attention_heads": 2}),
    whisper("untied", {"tie_word_embeddings": False}, untie=("proj_out",)),
    whisper("scale_embedding, which it ignores", {"scale_embedding": True}),
    whisper("table named as the head", stored=only("proj_out.weight")),
)

MOONSHINE = (
    moonshine("plain"),
    moonshine("all of a head turned", {"partial_rotary_factor": 1.0}),
    moonshine("an odd number of dimensions turned", {"partial_rotary_factor": 0.9}),
    moonshine("short waves", {"rope_theta": 50.0}),
    moonshine("rope parameters apart", {"rope_parameters": {"rope_theta": 50.0, "partial_rotary_factor": 0.3}}),
    moonshine("padded heads, which change nothing", {"pad_head_dim_to_multiple_of": 16}),
    moonshine("wide heads", {"head_dim": 12}),
    moonshine("the tiny checkpoint's heads", {"head_dim": 36}),
    moonshine("the base checkpoint's heads", {"head_dim": 52}),
    moonshine("odd sizes", {"hidden_size": 27, "intermediate_size": 37, "vocab_size": 53}),
    moonshine("attention biases", {"attention_bias": True}),
    moonshine("other activations", {"encoder_hidden_act": "relu", "decoder_hidden_act": "gelu"}),
    moonshine("deep encoder", {"encoder_num_hidden_layers": 3, "decoder_num_hidden_layers": 1}),
    moonshine("deep decoder", {"encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 3}),
    moonshine("untied", {"tie_word_embeddings": False}, untie=("proj_out",)),
    moonshine("table named as the head", stored=only("proj_out.weight")),
)

MLLAMA = (
    mllama("plain"),
    mllama(
        "four layers of self-attention for one of cross-attention",
        {"num_hidden_layers": 5, "cross_attention_layers": [3]},
    ),
    mllama("plain rope", {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}),
    mllama("as many kv heads", {"num_key_value_heads": 4, "rms_norm_eps": 1e-2}),
    mllama("other activations", {"hidden_act": "gelu"}, {"hidden_act": "relu", "norm_eps": 1e-2}),
    mllama("two tiles at most", None, {"max_num_tiles": 2, "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]]}),
    mllama("small patches", None, {"patch_size": 2, "intermediate_layers_indices": [2], "vision_output_dim": 32}),
)

SEEING = (
    seeing("ViT and TrOCR", VIT, TROCR),
    seeing("DeiT and TrOCR with sines", DEIT, {**TROCR, "use_learned_position_embeddings": False}),
    seeing("Donut", DONUT_SWIN, MBART_DECODER),
    seeing("Swin and RoBERTa", SWIN, ROBERTA),
    seeing("BERT", VIT, {**BERT, "vocab_size": 60}),
    seeing("BART", VIT, BART_DECODER),
    seeing("XLM-RoBERTa", VIT, {**ROBERTA, "model_type": "xlm-roberta"}),
    seeing("a projection", {**VIT, "hidden_size": 12}, TROCR),
    seeing("keys of the encoder's width", {**VIT, "hidden_size": 12}, {**TROCR, "cross_attention_hidden_size": 12}),
    seeing("no norm on scaled embeddings", VIT, {**TROCR, "scale_embedding": True, "layernorm_embedding": False}),
    seeing("an image that is no square", {**VIT, "image_size": [8, 18], "patch_size": [4, 3]}, MBART_DECODER),
    seeing("no biases of queries", {**DEIT, "qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 1e-2}, TROCR),
    seeing("windows that fit", {**SWIN, "image_size": [12, 24]}, TROCR),
    seeing("one window in the last stage", {**DONUT_SWIN, "image_size": [12, 12]}, TROCR),
    seeing("windows of an even size", {**DONUT_SWIN, "window_size": 2, "qkv_bias": False, "image_size": 22}, TROCR),
    seeing("an image that is no whole patches", {**SWIN, "image_size": [19, 32], "patch_size": [3, 4]}, TROCR),
    seeing("Swin with positions", {**SWIN, "use_absolute_embeddings": True, "layer_norm_eps": 1e-2}, TROCR),
    seeing("three stages", {**DONUT_SWIN, "depths": [1, 3, 1], "num_heads": [1, 2, 4], "image_size": [26, 24]}, TROCR),
    replace(seeing("ViT under older names", VIT, TROCR), stored=_older),
    replace(seeing("Swin under older names", SWIN, ROBERTA), stored=_older),
    seeing("untied", VIT, {**TROCR, "tie_word_embeddings": False}, ("decoder.output_projection",)),
    seeing("untied RoBERTa", VIT, {**ROBERTA, "tie_word_embeddings": False}, ("decoder.lm_head.decoder",)),
)

FLORENCE2 = (
    florence2("plain"),
    florence2(
        "three stages",
        {"scale_embedding": True, "activation_function": "relu", "max_position_embeddings": 64},
        {
            "depths": [1, 1, 1],
            "patch_size": [3, 3, 2],
            "patch_stride": [2, 2, 1],
            "patch_padding": [1, 0, 1],
            "patch_prenorm": [True, False, True],
            "embed_dim": [8, 12, 10],
            "num_heads": [4, 2, 5],
            "num_groups": [2, 6, 1],
        },
    ),
    florence2("windows larger than the image", None, {"window_size": 7, "qkv_bias": False, "mlp_ratio": 1.5}),
    florence2("windows of one", None, {"window_size": 1, "activation_function": "gelu_new"}),
)

ALL = (*BART, *T5, *MARIAN, *WHISPER, *MOONSHINE, *MLLAMA, *SEEING, *FLORENCE2)
ONE_EACH = (BART[0], T5[2], MARIAN[0], WHISPER[0], MOONSHINE[0], MLLAMA[0], SEEING[2], FLORENCE2[0])
