"""What text-to-text families share: a model over the common stacks, its head, and a processor over a tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.core.request import EncoderItem
from transduce.errors import RequestError
from transduce.layers.build import Builder
from transduce.layers.embedding import TokenEmbedding
from transduce.layers.step import EncoderBatch, StepInput
from transduce.models.base import Head, KVGroup, Model, Processor, Spec
from transduce.models.config import start_token
from transduce.quant.base import Linear
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.encoder import EncoderStack
from transduce.stacks.style import Style


def text_spec(
    style: Style,
    *,
    source_vocab: int,
    target_vocab: int,
    positions: int | None,
    bias: bool = False,
) -> Spec:
    """The Spec of a text-to-text model whose decoder has this style; positions: of either side, None: no limit."""
    return Spec(
        vocab_size=target_vocab,
        source_vocab=source_vocab,
        target_vocab=target_vocab,
        groups=(KVGroup("self", style.layers), KVGroup("cross", style.layers)),
        heads=style.heads,
        kv_heads=style.heads,
        head_dim=style.head_dim,
        max_source=positions,
        max_target=positions,
        fixed_rows=None,
        tasks=frozenset({"generate"}),
        bias=bias,
    )


@dataclass(frozen=True, slots=True, eq=False)
class TextModel(Model):
    """Token embeddings and a stack on each side."""

    spec: Spec
    heads: Mapping[str, Head]
    encoder_input: TokenEmbedding
    encoder: EncoderStack
    decoder_input: TokenEmbedding
    decoder: DecoderStack

    def encode(self, batch: EncoderBatch) -> Tensor:
        return self.encoder(self.encoder_input(batch.tokens, batch.positions), batch.lengths)

    def write_cross(self, encoded: Tensor, slots: Tensor) -> None:
        self.decoder.write_cross(encoded, slots)

    def forward(self, step: StepInput) -> Tensor:
        return self.decoder(self.decoder_input(step.tokens, step.positions), step)


@dataclass(frozen=True, slots=True, eq=False)
class LMHead:
    """Hidden rows [reads, d], scaled, to logits [reads, vocab] in float32: half precision would make ties of them."""

    linear: Linear
    scale: float = 1.0

    @classmethod
    def build(
        cls, b: Builder, name: str, d: int, vocab: int, bias: bool | Tensor = False, scale: float = 1.0
    ) -> "LMHead":
        return cls(b.linear(name, d, vocab, bias=bias, dtype=torch.float32), scale)

    def __call__(self, hidden: Tensor) -> Tensor:
        return self.linear(self._scaled(hidden))

    def best(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear.best(self._scaled(hidden))

    def top_k_lse(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.linear.top_k_lse(self._scaled(hidden), k)

    def _scaled(self, hidden: Tensor) -> Tensor:
        return hidden if self.scale == 1.0 else hidden * self.scale


def biased_head(b: Builder, name: str, d: int, vocab: int) -> LMHead:
    """The head of BART's relatives, with `final_logits_bias`: zero where a checkpoint was saved without it."""
    bias = b.tensor("final_logits_bias", (1, vocab))[0] if b.has("final_logits_bias") else False
    return LMHead.build(b, name, d, vocab, bias)


class TextProcessor(Processor):
    """Text through a transformers tokenizer; without one, token ids only."""

    media: str | None = None

    def __init__(self, tokenizer: Any, start: int | None) -> None:
        self.tokenizer = tokenizer
        self.start = start

    def source_ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text)(text, verbose=False)["input_ids"]
        return ids

    def target_ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text)(text_target=text, verbose=False)["input_ids"]
        return ids

    def item(self, source: object) -> EncoderItem:
        if not isinstance(source, Sequence) or not source or not all(isinstance(id_, int) for id_ in source):
            raise RequestError(f"encoder input {source!r}: give a list of token ids, at least one")
        return EncoderItem(np.array(source, np.int64), rows=len(source), cost=len(source))

    def decoder_ids(self, prompt: str | Sequence[int] | None, options: Mapping[str, object]) -> tuple[int, ...]:
        """As in Processor. A prompt gets the start token in front unless it begins with it; there are no options."""
        if options:
            raise RequestError(f"this model takes no option {', '.join(options)}")
        ids = self._target_ids(prompt) if isinstance(prompt, str) else tuple(prompt or ())
        if self.start is None and not ids:
            raise RequestError("the checkpoint names no decoder_start_token_id; give decoder token ids")
        return ids if self.start is None or ids[:1] == (self.start,) else (self.start, *ids)

    def _target_ids(self, text: str) -> tuple[int, ...]:
        encoded = self._tokenizer(text)(text_target=text, add_special_tokens=False, verbose=False)
        return tuple(encoded["input_ids"])

    def _tokenizer(self, text: str) -> Any:
        if self.tokenizer is None:
            raise RequestError(f"no tokenizer was loaded; give token ids instead of the text {text!r}")
        return self.tokenizer


def text_processor(folder: Path, config: object, generation: Mapping[str, Any], tokenizer: Any) -> TextProcessor:
    """The processor of a text checkpoint, as Family asks for it."""
    return TextProcessor(tokenizer, start_token(generation))
