"""The shapes that are measured, as `config.json` has them. Weights are random: speed does not depend on them."""

from typing import Any

Config = dict[str, Any]

CONFIGS: dict[str, Config] = {
    "bart-base": {
        "model_type": "bart",
        "architectures": ["BartForConditionalGeneration"],
        "vocab_size": 50265,
        "d_model": 768,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 12,
        "decoder_attention_heads": 12,
        "encoder_ffn_dim": 3072,
        "decoder_ffn_dim": 3072,
        "max_position_embeddings": 1024,
        "decoder_start_token_id": 2,
        "eos_token_id": 2,
        "bos_token_id": 0,
        "pad_token_id": 1,
    },
    "flan-t5-base": {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": 32128,
        "d_model": 768,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 12,
        "num_decoder_layers": 12,
        "num_heads": 12,
        "feed_forward_proj": "gated-gelu",
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "tie_word_embeddings": False,
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 0,
    },
}

SPECIAL_IDS = 4
"""Token ids below have a meaning in one of the models; inputs are drawn from the rest."""
