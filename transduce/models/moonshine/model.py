"""Moonshine: raw samples through three convolutions, rotary positions, norms without biases, a gated decoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from transduce.errors import CheckpointError
from transduce.layers.build import Builder
from transduce.layers.embedding import TokenEmbedding
from transduce.layers.rotary import Rotary, frequencies
from transduce.models.base import KVGroup, Spec
from transduce.models.config import Size, activation, view, with_rope
from transduce.models.speech import SpeechModel
from transduce.models.text import LMHead
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.encoder import EncoderStack
from transduce.stacks.style import Style

RATE = 16_000
"""Samples a second that every checkpoint hears."""

CONVOLUTIONS = ((127, 64), (7, 3), (3, 2))
"""Width and stride of each."""

TOKENS_A_SECOND = 6
"""Of fast speech: an audio for which the decoder has no positions at this rate is too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonshineConfig:
    """config.json of a Moonshine checkpoint, the rope parameters among its fields.

    There is also pad_head_dim_to_multiple_of: with zeros, for kernels that need it, which changes no result.
    """

    vocab_size: Size = 32768
    hidden_size: Size = 288
    intermediate_size: Size = 1152
    encoder_num_hidden_layers: Size = 6
    decoder_num_hidden_layers: Size = 6
    encoder_num_attention_heads: Size = 8
    decoder_num_attention_heads: Size = 8
    encoder_num_key_value_heads: Size | None = None
    decoder_num_key_value_heads: Size | None = None
    encoder_hidden_act: str = "gelu"
    decoder_hidden_act: str = "silu"
    max_position_embeddings: Size = 512
    attention_bias: bool = False
    tie_word_embeddings: bool = True
    head_dim: Size | None = None
    rope_type: str = "default"
    rope_theta: float = 10000.0
    partial_rotary_factor: float = 0.9

    @property
    def longest(self) -> int:
        """Samples of the longest audio whose text the decoder has positions for."""
        return self.max_position_embeddings * RATE // TOKENS_A_SECOND

    @property
    def head(self) -> int:
        """Dimensions of a head, on both sides."""
        return self.head_dim or self.hidden_size // self.encoder_num_attention_heads

    @property
    def turned(self) -> int:
        """Dimensions of a head that have frequencies, one for each pair; of an odd number, the last stands for two."""
        return int(self.head * self.partial_rotary_factor)

    def style(self, decoder: bool) -> Style:
        """One side's stack."""
        return Style(
            layers=self.decoder_num_hidden_layers if decoder else self.encoder_num_hidden_layers,
            d=self.hidden_size,
            heads=self.encoder_num_attention_heads,
            head_dim=self.head,
            ffn=self.intermediate_size,
            activation=activation(self.decoder_hidden_act if decoder else self.encoder_hidden_act),
            scale=self.head**-0.5,
            pre_norm=True,
            attention_bias=(self.attention_bias, self.attention_bias, self.attention_bias, False),
            norm_bias=False,
            gated=decoder,
            gate_within=decoder,
        )


def read(raw: Mapping[str, Any]) -> MoonshineConfig:
    """The view of config.json."""
    config = view(MoonshineConfig, with_rope(raw))
    _check_heads(config)
    _check_rope(config)
    return config


def _check_heads(config: MoonshineConfig) -> None:
    """transformers has one number of heads for both sides, whatever config.json says, and fails with shared keys."""
    heads = config.encoder_num_attention_heads
    for name in ("decoder_num_attention_heads", "encoder_num_key_value_heads", "decoder_num_key_value_heads"):
        if (number := getattr(config, name)) not in {None, heads}:
            raise CheckpointError(
                f"config.json has {name}={number!r} beside encoder_num_attention_heads={heads}; all are to be the same"
            )


def _check_rope(config: MoonshineConfig) -> None:
    if config.rope_type != "default":
        raise CheckpointError(f"config.json has rope_type={config.rope_type!r}; only 'default' is supported")
    if not 0 < config.turned <= config.head // 2 * 2:
        raise CheckpointError(
            f"config.json has partial_rotary_factor={config.partial_rotary_factor!r}, and heads of {config.head} "
            f"dimensions; it should be above 0, and 1 at most"
        )


def encoder_rows(samples: int) -> int:
    """Rows that the convolutions make of so many samples."""
    for width, stride in CONVOLUTIONS:
        samples = (samples - width) // stride + 1
    return max(0, samples)


@dataclass(frozen=True, slots=True, eq=False)
class FrontEnd:
    """Three convolutions over time, with a norm over all of an item after the first.

    conv1: weight [d, 1, 127]. conv2, conv3: (weight, bias). norm: (weight [d], bias [d]).
    """

    conv1: Tensor
    conv2: tuple[Tensor, Tensor]
    conv3: tuple[Tensor, Tensor]
    norm: tuple[Tensor, Tensor]

    @classmethod
    def build(cls, b: Builder, d: int) -> "FrontEnd":
        (first, _), (second, _), (third, _) = CONVOLUTIONS
        return cls(
            b.tensor("conv1.weight", (d, 1, first)),
            (b.tensor("conv2.weight", (2 * d, d, second)), b.tensor("conv2.bias", (2 * d,))),
            (b.tensor("conv3.weight", (d, 2 * d, third)), b.tensor("conv3.bias", (d,))),
            (b.tensor("groupnorm.weight", (d,)), b.tensor("groupnorm.bias", (d,))),
        )

    def __call__(self, samples: Tensor) -> Tensor:
        """samples [samples] -> [rows, d]."""
        (_, first), (_, second), (_, third) = CONVOLUTIONS
        x = F.conv1d(samples[None, None].to(self.conv1.dtype), self.conv1, stride=first).tanh()
        x = F.group_norm(x, 1, *self.norm)
        x = F.gelu(F.conv1d(x, *self.conv2, stride=second))
        x = F.gelu(F.conv1d(x, *self.conv3, stride=third))
        return x[0].T.contiguous()


def spec(config: MoonshineConfig) -> Spec:
    """An item has as many rows as its audio is long."""
    style = config.style(decoder=True)
    return Spec(
        vocab_size=config.vocab_size,
        source_vocab=0,
        target_vocab=config.vocab_size,
        groups=(KVGroup("self", style.layers), KVGroup("cross", style.layers)),
        heads=style.heads,
        kv_heads=style.heads,
        head_dim=style.head_dim,
        max_source=encoder_rows(config.longest),
        max_target=config.max_position_embeddings,
        fixed_rows=None,
        feature_shape=(config.longest,),
        tasks=frozenset({"generate", "transcribe"}),
    )


def build(config: MoonshineConfig, b: Builder) -> SpeechModel:
    """The model, loaded."""
    d, vocab = config.hidden_size, config.vocab_size
    tokens = b.first("decoder.embed_tokens", "proj_out")
    head = b.first("proj_out", tokens) if config.tie_word_embeddings else "proj_out"
    rotary = _rotary(config, b)
    return SpeechModel(
        spec(config),
        {"lm": LMHead.build(b, head, d, vocab)},
        FrontEnd.build(b.at("encoder"), d),
        EncoderStack.build(b.at("encoder"), config.style(decoder=False), rotary=rotary),
        TokenEmbedding(b.embedding(tokens, vocab, d)),
        DecoderStack.build(b.at("decoder"), config.style(decoder=True), rotary=rotary),
    )


def _rotary(config: MoonshineConfig, b: Builder) -> Rotary:
    positions = max(encoder_rows(config.longest), config.max_position_embeddings)
    return Rotary.build(positions, frequencies(config.turned, config.rope_theta), b.context.device)
