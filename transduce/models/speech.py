"""What speech families share: a model whose front end turns sound into rows of the common stacks, and its extractor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.layers.embedding import TokenEmbedding
from transduce.layers.step import EncoderBatch, StepInput
from transduce.models.base import Head, Model, Spec
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.encoder import EncoderStack

FrontEnd = Callable[[Tensor], Tensor]
"""An item's features to encoder rows [rows, d]: one item at a time, so that its rows know no other item."""


@dataclass(frozen=True, slots=True, eq=False)
class SpeechModel(Model):
    """A front end of the family's own and the stacks."""

    spec: Spec
    heads: Mapping[str, Head]
    front_end: FrontEnd
    encoder: EncoderStack
    decoder_input: TokenEmbedding
    decoder: DecoderStack

    def encode(self, batch: EncoderBatch) -> Tensor:
        rows = torch.cat([self.front_end(features) for features in batch.features])
        return self.encoder(rows, batch.lengths)

    def write_cross(self, encoded: Tensor, slots: Tensor) -> None:
        self.decoder.write_cross(encoded, slots)

    def forward(self, step: StepInput) -> Tensor:
        return self.decoder(self.decoder_input(step.tokens, step.positions), step)

    def attention(
        self, queries: Sequence[Tensor], heads: Sequence[tuple[int, int]], tables: Sequence[Sequence[int]], rows: int
    ) -> Tensor:
        return self.decoder.attention(queries, heads, tables, rows)
