"""BERT as a decoder with cross-attention, and what its relatives have in common with it."""

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from transduce.errors import CheckpointError
from transduce.layers.build import Builder
from transduce.layers.embedding import Embedding, TokenEmbedding
from transduce.layers.norm import Norm
from transduce.models.config import Size, activation, view
from transduce.models.parts import Decoder, TextDecoder
from transduce.models.text import LMHead
from transduce.quant.base import Linear
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.style import Style

FILE = "config.json's decoder"


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """The decoder's part of config.json. Its tokens are all of one type, the first."""

    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: str = "gelu"
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = True

    @property
    def unused(self) -> int:
        """The first rows of the table of positions, which are never read."""
        return 0

    @property
    def head_activation(self) -> str:
        """Of the layer before the head."""
        return self.hidden_act

    @property
    def positions(self) -> int:
        """As in TextConfig."""
        return self.max_position_embeddings - self.unused

    @property
    def style(self) -> Style:
        """As in TextConfig."""
        if self.hidden_size % self.num_attention_heads:
            raise CheckpointError(
                f"{FILE}: hidden_size {self.hidden_size} is not a multiple of {self.num_attention_heads} heads"
            )
        head_dim = self.hidden_size // self.num_attention_heads
        return Style(
            layers=self.num_hidden_layers,
            d=self.hidden_size,
            heads=self.num_attention_heads,
            head_dim=head_dim,
            ffn=self.intermediate_size,
            activation=activation(self.hidden_act),
            scale=head_dim**-0.5,
            pre_norm=False,
            eps=self.layer_norm_eps,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Transform:
    """What hidden rows go through before the head."""

    dense: Linear
    norm: Norm

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, d] -> [rows, d]."""
        return self.norm(self.dense(x))


def build(config: BertConfig, b: Builder) -> Decoder:
    """The decoder, loaded."""
    d, at, eps = config.hidden_size, b.at("lm_head"), config.layer_norm_eps
    words = "embeddings.word_embeddings"
    table = b.first(words, "lm_head")
    head = b.first("lm_head", table) if config.tie_word_embeddings else "lm_head"
    return Decoder(
        TokenEmbedding(
            b.embedding(table, config.vocab_size, d),
            _positions(config, b),
            b.layer_norm("embeddings.LayerNorm", d, eps),
        ),
        DecoderStack.build(b, config.style),
        Transform(
            at.linear("dense", d, d, activation=activation(config.head_activation)), at.layer_norm("layer_norm", d, eps)
        ),
        LMHead.build(b, head, d, config.vocab_size, at.tensor(_bias(config, at), (config.vocab_size,))),
    )


def _bias(config: BertConfig, b: Builder) -> str:
    """The head's has two names, of which the second counts where it is not tied to the first."""
    names = ("bias", "decoder.bias") if config.tie_word_embeddings else ("decoder.bias", "bias")
    return next(iter([name for name in names if b.has(name)]), names[0])


def _positions(config: BertConfig, b: Builder) -> Embedding:
    """With what is added for the type of the tokens, the first."""
    at, d = b.at("embeddings"), config.hidden_size
    positions = at.tensor("position_embeddings.weight", (config.max_position_embeddings, d))
    types = at.tensor("token_type_embeddings.weight", (config.type_vocab_size, d))
    return Embedding(positions[config.unused :] + types[0])


DECODER = TextDecoder(partial(view, BertConfig, file=FILE), build)
