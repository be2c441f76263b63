"""The composite: a tower whose rows a text's rows follow, through a BART."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transduce.layers.build import Builder
from transduce.layers.step import EncoderBatch, StepInput
from transduce.models.base import Head, Model, Spec, find
from transduce.models.florence2.config import TEXT, Florence2Config
from transduce.models.florence2.vision import VisionTower
from transduce.models.text import TextModel


@dataclass(frozen=True, slots=True, eq=False)
class Florence2(Model):
    """An item's features are an image's pixels [channels, height, width]; the text's tokens stand beside them."""

    spec: Spec
    heads: Mapping[str, Head]
    tower: VisionTower
    text: TextModel

    def encode(self, batch: EncoderBatch) -> Tensor:
        images = [self.tower(image) for image in batch.features]
        lengths = [rows - len(image) for rows, image in zip(batch.lengths, images, strict=True)]
        texts = self.text.encoder_input.tokens(batch.tokens).split(lengths)
        rows = torch.cat([part for both in zip(images, texts, strict=True) for part in both])
        positions = torch.cat([torch.arange(length, device=rows.device) for length in batch.lengths])
        return self.text.encoder(self.text.encoder_input.placed(rows, positions), batch.lengths)

    def write_cross(self, encoded: Tensor, slots: Tensor) -> None:
        self.text.write_cross(encoded, slots)

    def forward(self, step: StepInput) -> Tensor:
        return self.text.forward(step)


def spec(config: Florence2Config) -> Spec:
    """BART's, of whose positions an image takes some."""
    text, side = find(TEXT).spec(config.text), config.side
    rows = config.vision.rows(side, side)
    assert rows is not None, "the largest image has positions"
    shape = (config.vision.in_channels, side, side)
    return replace(text, feature_shape=shape, beside=(text.max_source or rows) - rows)


def build(config: Florence2Config, b: Builder) -> Florence2:
    """The model, loaded."""
    text = find(TEXT).build(config.text, b)
    assert isinstance(text, TextModel), "BART is text to text"
    return Florence2(spec(config), text.heads, VisionTower.build(b, config.vision), text)
