"""BART's decoder by itself, and what its relatives have in common with it."""

from dataclasses import dataclass
from functools import partial

from transduce.layers.build import Builder
from transduce.layers.embedding import Embedding, TokenEmbedding
from transduce.models.config import Size, TwoSided, view
from transduce.models.parts import Decoder, TextDecoder
from transduce.models.text import LMHead
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.style import Style

FILE = "config.json's decoder"

OFFSET = 2
"""The first rows of a table of positions were meant for padding and are never read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BartConfig(TwoSided):
    """config.json of a BART checkpoint, or a decoder's part of one, which may say things about an encoder too."""

    vocab_size: Size = 50265
    d_model: Size = 1024
    activation_function: str = "gelu"
    encoder_layers: Size = 12
    encoder_attention_heads: Size = 16
    encoder_ffn_dim: Size = 4096
    decoder_layers: Size = 12
    decoder_attention_heads: Size = 16
    decoder_ffn_dim: Size = 4096
    max_position_embeddings: Size = 1024
    scale_embedding: bool = False

    @property
    def positions(self) -> int:
        """As in TextConfig."""
        return self.max_position_embeddings

    @property
    def style(self) -> Style:
        """As in TextConfig."""
        return self.decoder_style(pre_norm=False)


def learned(config: BartConfig, b: Builder) -> Embedding:
    """The positions that the checkpoint holds."""
    return Embedding(b.tensor("embed_positions.weight", (config.positions + OFFSET, config.d_model))[OFFSET:])


def build(config: BartConfig, b: Builder) -> Decoder:
    """The decoder, loaded."""
    return assembled(config, b, learned(config, b), normed=True)


def assembled(config: BartConfig, b: Builder, positions: Embedding, normed: bool) -> Decoder:
    """The decoder with these positions. normed: whether there is a norm on the embeddings."""
    d, table = config.d_model, b.first("embed_tokens", "lm_head")
    head = b.first("lm_head", table) if config.tie_word_embeddings else "lm_head"
    scale = d**0.5 if config.scale_embedding else 1.0
    norm = b.layer_norm("layernorm_embedding", d) if normed else None
    return Decoder(
        TokenEmbedding(b.embedding(table, config.vocab_size, d, scale), positions, norm),
        DecoderStack.build(b, config.style),
        None,
        LMHead.build(b, head, d, config.vocab_size),
    )


DECODER = TextDecoder(partial(view, BartConfig, file=FILE), build)
