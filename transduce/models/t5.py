"""T5, v1.0 and v1.1 (FLAN): RMS pre-norm, no biases, and positions only as a bias on attention scores."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from transduce.errors import CheckpointError
from transduce.layers.build import Builder
from transduce.layers.embedding import TokenEmbedding
from transduce.layers.relative_bias import distance_table
from transduce.models.base import Family, Spec
from transduce.models.config import Size, activation, view
from transduce.models.text import LMHead, TextModel, text_processor, text_spec
from transduce.quant.base import Activation
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.encoder import EncoderStack
from transduce.stacks.style import Style

MODULES: Mapping[str, str] = {
    "SelfAttention": "self_attn.",
    "EncDecAttention": "encoder_attn.",
    "DenseReluDense": "",
}
LINEARS: Mapping[str, str] = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "out_proj",
    "wi": "fc1",
    "wi_0": "gate",
    "wi_1": "fc1",
    "wo": "fc2",
}
NORMS: Mapping[tuple[str, str], str] = {
    ("encoder", "0"): "self_attn_layer_norm",
    ("encoder", "1"): "final_layer_norm",
    ("decoder", "0"): "self_attn_layer_norm",
    ("decoder", "1"): "encoder_attn_layer_norm",
    ("decoder", "2"): "final_layer_norm",
}


KEEP = ("lm_head",)
"""The last norm's weights differ so much that a head of its own needs more than 8 bits, of its weight and its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class T5Config:
    """config.json of a T5 checkpoint.

    tie_word_embeddings: besides tying, `false` means that the logits are not scaled, unless scale_decoder_outputs,
    which newer files have, says otherwise.
    """

    vocab_size: Size = 32128
    d_model: Size = 512
    d_kv: Size = 64
    d_ff: Size = 2048
    num_layers: Size = 6
    num_decoder_layers: Size | None = None
    num_heads: Size = 8
    relative_attention_num_buckets: Size = 32
    relative_attention_max_distance: Size = 128
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool | None = None
    scale_decoder_outputs: bool | None = None

    @property
    def logits_scale(self) -> float:
        """What hidden rows are multiplied by before the head."""
        scaled = self.scale_decoder_outputs
        if scaled is None:
            scaled = self.tie_word_embeddings is not False
        return float(self.d_model**-0.5) if scaled else 1.0

    def style(self, decoder: bool) -> Style:
        """One side's stack; the decoder has as many layers as the encoder unless it says otherwise."""
        own = self.num_decoder_layers if decoder else None
        gated, act = _feed_forward(self.feed_forward_proj)
        return Style(
            layers=self.num_layers if own is None else own,
            d=self.d_model,
            heads=self.num_heads,
            head_dim=self.d_kv,
            ffn=self.d_ff,
            activation=act,
            scale=1.0,
            pre_norm=True,
            norm="rms",
            eps=self.layer_norm_epsilon,
            bias=False,
            attention_bias=(False, False, False, False),
            gated=gated,
        )


def _feed_forward(name: str) -> tuple[bool, Activation]:
    """Whether it is gated, and its activation: `gated-gelu` has always meant the tanh form."""
    match name.split("-"):
        case ["gated", "gelu"]:
            return True, "gelu_new"
        case ["gated", act]:
            return True, activation(act)
        case [act]:
            return False, activation(act)
        case _:
            raise CheckpointError(f"feed_forward_proj {name!r}: known forms are ACTIVATION and gated-ACTIVATION")


def spec(config: T5Config) -> Spec:
    """Positions are relative: there is no longest input."""
    return text_spec(
        config.style(decoder=True),
        source_vocab=config.vocab_size,
        target_vocab=config.vocab_size,
        positions=None,
        bias=True,
    )


def build(config: T5Config, b: Builder) -> TextModel:
    """The model, loaded."""
    b = b.with_outliers()
    return TextModel(
        spec(config),
        {"lm": _head(config, b)},
        _input(config, b, "encoder"),
        EncoderStack.build(b.at("encoder"), config.style(decoder=False), _bias(config, b, "encoder")),
        _input(config, b, "decoder"),
        DecoderStack.build(b.at("decoder"), config.style(decoder=True), _bias(config, b, "decoder")),
    )


def _input(config: T5Config, b: Builder, side: str) -> TokenEmbedding:
    return TokenEmbedding(b.embedding(_table(b, f"{side}.embed_tokens"), config.vocab_size, config.d_model))


def _table(b: Builder, name: str) -> str:
    """One table serves both sides; where a checkpoint holds `name` too, that is the one."""
    return b.first(name, "shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")


def _bias(config: T5Config, b: Builder, side: str) -> Tensor:
    shape = (config.relative_attention_num_buckets, config.num_heads)
    buckets = b.tensor(f"{side}.relative_bias.weight", shape)
    return distance_table(buckets, config.relative_attention_max_distance, bidirectional=side == "encoder")


def _head(config: T5Config, b: Builder) -> LMHead:
    """Tied unless the checkpoint has a head of its own, whatever its config says."""
    return LMHead.build(b, _table(b, "lm_head"), config.d_model, config.vocab_size, scale=config.logits_scale)


def rename(name: str) -> str | None:
    """T5's blocks of numbered sublayers to the stacks' names."""
    match name.split("."):
        case [_, "block", _, "layer", _, "EncDecAttention", "relative_attention_bias", _]:
            return None  # in the first checkpoints, and never used
        case [side, "block", "0", "layer", "0", "SelfAttention", "relative_attention_bias", leaf]:
            return f"{side}.relative_bias.{leaf}"
        case [side, "block", layer, "layer", sublayer, "layer_norm", leaf] if (side, sublayer) in NORMS:
            return f"{side}.layers.{layer}.{NORMS[side, sublayer]}.{leaf}"
        case [side, "block", layer, "layer", _, module, linear, leaf] if module in MODULES and linear in LINEARS:
            return f"{side}.layers.{layer}.{MODULES[module]}{LINEARS[linear]}.{leaf}"
        case [side, "final_layer_norm", leaf]:
            return f"{side}.layer_norm.{leaf}"
        case _:
            return name


FAMILY = Family(
    config=lambda raw: view(T5Config, raw),
    spec=spec,
    build=build,
    rename=rename,
    processor=text_processor,
    architectures=frozenset({"T5ForConditionalGeneration"}),
    keep=KEEP,
)
