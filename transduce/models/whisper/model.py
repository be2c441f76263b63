"""Whisper: log-mel frames through two convolutions, pre-norm stacks, keys without a bias."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from transduce.layers.build import Builder
from transduce.layers.embedding import Embedding, TokenEmbedding
from transduce.models.base import KVGroup, Spec
from transduce.models.config import Size, TwoSided
from transduce.models.speech import SpeechModel
from transduce.models.text import LMHead
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.encoder import EncoderStack

MULTILINGUAL_VOCAB = 51865


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperConfig(TwoSided):
    """config.json of a Whisper checkpoint. max_source_positions: encoder rows of every window."""

    vocab_size: Size = 51865
    num_mel_bins: Size = 80
    d_model: Size = 384
    activation_function: str = "gelu"
    encoder_layers: Size = 4
    encoder_attention_heads: Size = 6
    encoder_ffn_dim: Size = 1536
    decoder_layers: Size = 4
    decoder_attention_heads: Size = 6
    decoder_ffn_dim: Size = 1536
    max_source_positions: Size = 1500
    max_target_positions: Size = 448

    @property
    def multilingual(self) -> bool:
        """English-only checkpoints have no language tokens to spare, hence a smaller vocabulary."""
        return self.vocab_size >= MULTILINGUAL_VOCAB


@dataclass(frozen=True, slots=True, eq=False)
class FrontEnd:
    """Two convolutions over time, the second halving it, and positions.

    conv1, conv2: (weight [d, channels, 3], bias [d]). positions: [rows, d].
    """

    conv1: tuple[Tensor, Tensor]
    conv2: tuple[Tensor, Tensor]
    positions: Tensor

    @classmethod
    def build(cls, b: Builder, config: WhisperConfig) -> "FrontEnd":
        d, rows = config.d_model, config.max_source_positions
        return cls(
            (b.tensor("conv1.weight", (d, config.num_mel_bins, 3)), b.tensor("conv1.bias", (d,))),
            (b.tensor("conv2.weight", (d, d, 3)), b.tensor("conv2.bias", (d,))),
            b.tensor("embed_positions.weight", (rows, d)),
        )

    def __call__(self, features: Tensor) -> Tensor:
        """features [mels, 2 * rows] -> [rows, d]."""
        assert features.shape[1] == 2 * len(self.positions), "a window has a fixed number of frames"
        x = features[None].to(self.positions.dtype)
        x = F.gelu(F.conv1d(x, *self.conv1, padding=1))
        x = F.gelu(F.conv1d(x, *self.conv2, stride=2, padding=1))
        return x[0].T + self.positions


def spec(config: WhisperConfig) -> Spec:
    """Every window is the same number of rows, silence included."""
    style = config.decoder_style(pre_norm=True)
    return Spec(
        vocab_size=config.vocab_size,
        source_vocab=0,
        target_vocab=config.vocab_size,
        groups=(KVGroup("self", style.layers), KVGroup("cross", style.layers)),
        heads=style.heads,
        kv_heads=style.heads,
        head_dim=style.head_dim,
        max_source=None,
        max_target=config.max_target_positions,
        fixed_rows=config.max_source_positions,
        feature_shape=(config.num_mel_bins, 2 * config.max_source_positions),
        tasks=frozenset({"generate", "transcribe"}),
    )


def build(config: WhisperConfig, b: Builder) -> SpeechModel:
    """The model, loaded."""
    d, vocab = config.d_model, config.vocab_size
    tokens = b.first("decoder.embed_tokens", "proj_out")
    head = b.first("proj_out", tokens) if config.tie_word_embeddings else "proj_out"
    return SpeechModel(
        spec(config),
        {"lm": LMHead.build(b, head, d, vocab)},
        FrontEnd.build(b.at("encoder"), config),
        EncoderStack.build(b.at("encoder"), config.encoder_style(pre_norm=True, key_bias=False)),
        TokenEmbedding(
            b.embedding(tokens, vocab, d),
            Embedding(b.tensor("decoder.embed_positions.weight", (config.max_target_positions, d))),
        ),
        DecoderStack.build(b.at("decoder"), config.decoder_style(pre_norm=True, key_bias=False)),
    )
