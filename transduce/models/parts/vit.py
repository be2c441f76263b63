"""ViT: patches of an image, and a row for all of it, through a pre-norm encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transduce.errors import CheckpointError
from transduce.layers.build import Builder
from transduce.models.config import Size, activation, view
from transduce.models.parts import ImageEncoder
from transduce.models.parts.patches import Patches, pair
from transduce.stacks.encoder import EncoderStack
from transduce.stacks.style import Style


@dataclass(frozen=True, slots=True, kw_only=True)
class ViTConfig:
    """The encoder's part of config.json."""

    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    image_size: Size | list[int] = 224
    patch_size: Size | list[int] = 16
    num_channels: Size = 3
    qkv_bias: bool = True

    @property
    def tokens(self) -> tuple[str, ...]:
        """The rows in front of the patches."""
        return ("cls_token",)

    @property
    def shape(self) -> tuple[int, int, int]:
        """As in ImageConfig."""
        return (self.num_channels, *pair("image_size", self.image_size))

    @property
    def patch(self) -> tuple[int, int]:
        """Its height and width."""
        return pair("patch_size", self.patch_size)

    @property
    def rows(self) -> int:
        """As in ImageConfig."""
        (_, height, width), (down, across) = self.shape, self.patch
        return (height // down) * (width // across) + len(self.tokens)

    @property
    def width(self) -> int:
        """As in ImageConfig."""
        return self.hidden_size

    @property
    def style(self) -> Style:
        """The stack's."""
        head_dim = self.hidden_size // self.num_attention_heads
        return Style(
            layers=self.num_hidden_layers,
            d=self.hidden_size,
            heads=self.num_attention_heads,
            head_dim=head_dim,
            ffn=self.intermediate_size,
            activation=activation(self.hidden_act),
            scale=head_dim**-0.5,
            pre_norm=True,
            eps=self.layer_norm_eps,
            attention_bias=(self.qkv_bias, self.qkv_bias, self.qkv_bias, True),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ViT:
    """first: the rows in front, [tokens, d]. positions: of the patches, [patches, d]."""

    patches: Patches
    first: Tensor
    positions: Tensor
    stack: EncoderStack

    @classmethod
    def build(cls, config: ViTConfig, b: Builder) -> "ViT":
        at, d = b.at("embeddings"), config.hidden_size
        positions = at.tensor("position_embeddings", (1, config.rows, d))[0]
        tokens = torch.cat([at.tensor(name, (1, 1, d))[0] for name in config.tokens])
        return cls(
            Patches.build(at, config.num_channels, config.patch, d),
            tokens + positions[: len(tokens)],
            positions[len(tokens) :],
            EncoderStack.build(b, config.style),
        )

    def __call__(self, images: Sequence[Tensor]) -> Tensor:
        """As Tower."""
        rows = [part for image in images for part in (self.first, self.patches(image) + self.positions)]
        return self.stack(torch.cat(rows), (len(self.first) + len(self.positions),) * len(images))


def encoder(kind: type[ViTConfig]) -> ImageEncoder:
    """The part whose config is viewed so."""
    return ImageEncoder(partial(_read, kind), ViT.build)


def _read(kind: type[ViTConfig], raw: Mapping[str, Any]) -> ViTConfig:
    """Raises CheckpointError on what no model can be made of."""
    config = view(kind, raw, file="config.json's encoder")
    if config.hidden_size % config.num_attention_heads:
        raise CheckpointError(
            f"config.json: hidden_size {config.hidden_size} is not a multiple of {config.num_attention_heads} heads"
        )
    return config


ENCODER = encoder(ViTConfig)
