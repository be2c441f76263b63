"""Llama 3.2 Vision: images through a tower and a projector, text through a stack with cross-attention in between."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.layers.build import Builder
from transduce.layers.embedding import TokenEmbedding
from transduce.layers.rotary import Rotary
from transduce.layers.step import EncoderBatch, StepInput
from transduce.models.base import Head, KVGroup, Model, Spec
from transduce.models.mllama.config import EXTRA, MllamaConfig
from transduce.models.mllama.vision import VisionTower
from transduce.models.text import LMHead
from transduce.quant.base import Linear
from transduce.stacks.interleaved import InterleavedStack


@dataclass(frozen=True, slots=True, eq=False)
class MllamaModel(Model):
    """An item's features are an image's pixels [tiles down, tiles across, channels, height, width]."""

    spec: Spec
    heads: Mapping[str, Head]
    tower: VisionTower
    projector: Linear
    decoder_input: TokenEmbedding
    decoder: InterleavedStack

    def encode(self, batch: EncoderBatch) -> Tensor:
        return torch.cat([self.projector(self.tower(image)) for image in batch.features])

    def write_cross(self, encoded: Tensor, slots: Tensor) -> None:
        self.decoder.write_cross(encoded, slots)

    def forward(self, step: StepInput) -> Tensor:
        return self.decoder(self.decoder_input(step.tokens, step.positions), step)


def spec(config: MllamaConfig) -> Spec:
    """An image has as many rows as it has tiles."""
    text, vision = config.text, config.vision
    down, across = max(vision.ratios, key=lambda ratio: ratio[0] * ratio[1])
    crossing = len(set(text.cross_attention_layers))
    return Spec(
        vocab_size=text.vocab_size,
        source_vocab=0,
        target_vocab=text.vocab_size + EXTRA,
        groups=(KVGroup("self", text.num_hidden_layers - crossing), KVGroup("cross", crossing)),
        heads=text.num_attention_heads,
        kv_heads=text.num_key_value_heads,
        head_dim=text.head_dim,
        max_source=down * across * vision.rows,
        max_target=text.max_position_embeddings,
        fixed_rows=None,
        feature_shape=(down, across, vision.num_channels, vision.image_size, vision.image_size),
        tasks=frozenset({"generate"}),
    )


def build(config: MllamaConfig, b: Builder) -> MllamaModel:
    """The model, loaded."""
    text, d = config.text, config.text.hidden_size
    rotary = Rotary.build(text.max_position_embeddings, text.frequencies, b.context.device, halves=True)
    return MllamaModel(
        spec(config),
        {"lm": LMHead.build(b, "lm_head", d, text.vocab_size)},
        VisionTower.build(b.at("vision"), config.vision),
        b.for_encoder_rows().linear("projector", config.vision.width, d),
        TokenEmbedding(b.embedding("decoder.embed_tokens", text.vocab_size + EXTRA, d)),
        InterleavedStack.build(b.at("decoder"), text.style, frozenset(text.cross_attention_layers), rotary),
    )
