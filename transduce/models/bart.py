"""BART: post-norm, learned positions that start at row 2, a norm on the embeddings, a bias on the logits."""

from transduce.layers.build import Builder
from transduce.layers.embedding import Embedding, TokenEmbedding
from transduce.models.base import Family, Spec
from transduce.models.config import view
from transduce.models.parts.bart import OFFSET, BartConfig
from transduce.models.text import LMHead, TextModel, biased_head, text_processor, text_spec
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.encoder import EncoderStack


def spec(config: BartConfig) -> Spec:
    """Both sides share one vocabulary."""
    return text_spec(
        config.decoder_style(pre_norm=False),
        source_vocab=config.vocab_size,
        target_vocab=config.vocab_size,
        positions=config.max_position_embeddings,
    )


def build(config: BartConfig, b: Builder) -> TextModel:
    """The model, loaded."""
    return TextModel(
        spec(config),
        {"lm": _head(config, b)},
        _input(config, b, "encoder"),
        EncoderStack.build(b.at("encoder"), config.encoder_style(pre_norm=False)),
        _input(config, b, "decoder"),
        DecoderStack.build(b.at("decoder"), config.decoder_style(pre_norm=False)),
    )


def _input(config: BartConfig, b: Builder, side: str) -> TokenEmbedding:
    scale = config.d_model**0.5 if config.scale_embedding else 1.0
    rows = config.max_position_embeddings + OFFSET
    positions = b.tensor(f"{side}.embed_positions.weight", (rows, config.d_model))[OFFSET:]
    return TokenEmbedding(
        b.embedding(_table(b, f"{side}.embed_tokens"), config.vocab_size, config.d_model, scale),
        Embedding(positions),
        b.at(side).layer_norm("layernorm_embedding", config.d_model),
    )


def _table(b: Builder, name: str) -> str:
    """One table serves both sides and the head; where a checkpoint holds `name` too, that is the one."""
    return b.first(name, "shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")


def _head(config: BartConfig, b: Builder) -> LMHead:
    name = _table(b, "lm_head") if config.tie_word_embeddings else "lm_head"
    return biased_head(b, name, config.d_model, config.vocab_size)


def rename(name: str) -> str | None:
    """The stacks' names are BART's own."""
    return name.removeprefix("model.")


FAMILY = Family(
    config=lambda raw: view(BartConfig, raw),
    spec=spec,
    build=build,
    rename=rename,
    processor=text_processor,
    architectures=frozenset({"BartForConditionalGeneration"}),
)
