"""The composite: a tower for images, a projection where widths differ, a decoder."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from transduce.layers.build import Builder
from transduce.layers.step import EncoderBatch, StepInput
from transduce.models.base import Head, KVGroup, Model, Spec
from transduce.models.parts import Decoder, Tower
from transduce.models.vision_encoder_decoder.config import VisionEncoderDecoderConfig
from transduce.quant.base import Linear


@dataclass(frozen=True, slots=True, eq=False)
class VisionEncoderDecoder(Model):
    """An item's features are an image's pixels [channels, height, width]."""

    spec: Spec
    heads: Mapping[str, Head]
    tower: Tower
    projection: Linear | None
    decoder: Decoder

    def encode(self, batch: EncoderBatch) -> Tensor:
        rows = self.tower(batch.features)
        return rows if self.projection is None else self.projection(rows)

    def write_cross(self, encoded: Tensor, slots: Tensor) -> None:
        self.decoder.stack.write_cross(encoded, slots)

    def forward(self, step: StepInput) -> Tensor:
        return self.decoder(step)


def spec(config: VisionEncoderDecoderConfig) -> Spec:
    """All images have as many rows, for all are brought to one size."""
    style, text = config.text.style, config.text
    return Spec(
        vocab_size=text.vocab_size,
        source_vocab=0,
        target_vocab=text.vocab_size,
        groups=(KVGroup("self", style.layers), KVGroup("cross", style.layers)),
        heads=style.heads,
        kv_heads=style.heads,
        head_dim=style.head_dim,
        max_source=config.image.rows,
        max_target=text.positions,
        fixed_rows=config.image.rows,
        feature_shape=config.image.shape,
        tasks=frozenset({"generate"}),
        hidden=style.d,
    )


def build(config: VisionEncoderDecoderConfig, b: Builder) -> VisionEncoderDecoder:
    """The model, loaded."""
    decoder = config.decoder.build(config.text, b.at("decoder"))
    width, d = config.image.width, config.text.style.d
    return VisionEncoderDecoder(
        spec(config),
        {"lm": decoder.head},
        config.encoder.build(config.image, b.at("encoder")),
        b.for_encoder_rows().linear("enc_to_dec_proj", width, d) if config.projected else None,
        decoder,
    )
