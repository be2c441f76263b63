"""Marian (OPUS-MT): post-norm, sinusoidal or stored positions, one vocabulary or one for each side."""

from dataclasses import dataclass

from transduce.layers.build import Builder
from transduce.layers.embedding import Embedding, TokenEmbedding, sinusoidal
from transduce.models.base import Family, Spec
from transduce.models.config import Size, TwoSided, view
from transduce.models.text import LMHead, TextModel, biased_head, text_processor, text_spec
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.encoder import EncoderStack


@dataclass(frozen=True, slots=True, kw_only=True)
class MarianConfig(TwoSided):
    """config.json of a Marian checkpoint. decoder_vocab_size: None where the sides share a vocabulary."""

    vocab_size: Size = 58101
    decoder_vocab_size: Size | None = None
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
    share_encoder_decoder_embeddings: bool = True

    @property
    def target_vocab(self) -> int:
        """Tokens the decoder knows."""
        if self.share_encoder_decoder_embeddings:
            return self.vocab_size
        return self.decoder_vocab_size or self.vocab_size


def spec(config: MarianConfig) -> Spec:
    """Source and target ids may belong to different vocabularies."""
    return text_spec(
        config.decoder_style(pre_norm=False),
        source_vocab=config.vocab_size,
        target_vocab=config.target_vocab,
        positions=config.max_position_embeddings,
    )


def build(config: MarianConfig, b: Builder) -> TextModel:
    """The model, loaded."""
    return TextModel(
        spec(config),
        {"lm": _head(config, b)},
        _input(config, b, "encoder", config.vocab_size),
        EncoderStack.build(b.at("encoder"), config.encoder_style(pre_norm=False)),
        _input(config, b, "decoder", config.target_vocab),
        DecoderStack.build(b.at("decoder"), config.decoder_style(pre_norm=False)),
    )


def _input(config: MarianConfig, b: Builder, side: str, vocab_size: int) -> TokenEmbedding:
    scale = config.d_model**0.5 if config.scale_embedding else 1.0
    tokens = b.embedding(_table(config, b, f"{side}.embed_tokens"), vocab_size, config.d_model, scale)
    return TokenEmbedding(tokens, _positions(config, b, f"{side}.embed_positions"))


def _positions(config: MarianConfig, b: Builder, name: str) -> Embedding:
    """The stored table, which may have been learned; checkpoints that leave it out have sines."""
    rows = config.max_position_embeddings
    if b.has(f"{name}.weight"):
        return Embedding(b.tensor(f"{name}.weight", (rows, config.d_model)))
    return Embedding(sinusoidal(rows, config.d_model).to(b.context.device, b.context.dtype))


def _table(config: MarianConfig, b: Builder, name: str) -> str:
    """The tensor to use as `name`: its own, else one it is tied to."""
    if config.share_encoder_decoder_embeddings:
        return b.first(name, "shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
    return name if name == "encoder.embed_tokens" else b.first(name, "decoder.embed_tokens", "lm_head")


def _head(config: MarianConfig, b: Builder) -> LMHead:
    name = _table(config, b, "lm_head") if config.tie_word_embeddings else "lm_head"
    return biased_head(b, name, config.d_model, config.target_vocab)


def rename(name: str) -> str | None:
    """The stacks' names are Marian's own."""
    return name.removeprefix("model.")


FAMILY = Family(
    config=lambda raw: view(MarianConfig, raw),
    spec=spec,
    build=build,
    rename=rename,
    processor=text_processor,
    architectures=frozenset({"MarianMTModel"}),
)
