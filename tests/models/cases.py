"""The configurations every family is tested in: each flag that matters, in both positions."""

from functools import partial

from tests.models.tiny import Case, only, without

bart = partial(Case, "bart")
t5 = partial(Case, "t5")
marian = partial(Case, "marian")
whisper = partial(Case, "whisper")
moonshine = partial(Case, "moonshine")

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
    moonshine("odd sizes", {"hidden_size": 27, "intermediate_size": 37, "vocab_size": 53}),
    moonshine("attention biases", {"attention_bias": True}),
    moonshine("other activations", {"encoder_hidden_act": "relu", "decoder_hidden_act": "gelu"}),
    moonshine("deep encoder", {"encoder_num_hidden_layers": 3, "decoder_num_hidden_layers": 1}),
    moonshine("deep decoder", {"encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 3}),
    moonshine("untied", {"tie_word_embeddings": False}, untie=("proj_out",)),
    moonshine("table named as the head", stored=only("proj_out.weight")),
)

ALL = (*BART, *T5, *MARIAN, *WHISPER, *MOONSHINE)
ONE_EACH = (BART[0], T5[2], MARIAN[0], WHISPER[0], MOONSHINE[0])
