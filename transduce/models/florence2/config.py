"""config.json of Florence-2: the tower's stages, and a BART."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transduce.errors import CheckpointError
from transduce.models.base import find
from transduce.models.config import Size, activation, view
from transduce.models.florence2 import older
from transduce.stacks.style import Style

TEXT = "bart"
"""The family of the text part."""

SIDE = 768
"""Pixels of the images that published checkpoints are made for; their config.json does not say."""

Grid = tuple[int, int]
"""Rows down and across."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A convolution to a coarser grid and the blocks on it. channels: of what it is given. prenorm: whether the norm
    stands before the convolution. groups: of channels that attend to each other. style: of the blocks.
    """

    channels: int
    patch: int
    stride: int
    padding: int
    prenorm: bool
    groups: int
    style: Style

    def grid(self, before: Grid) -> Grid:
        """What becomes of a grid."""
        down, across = ((side + 2 * self.padding - self.patch) // self.stride + 1 for side in before)
        return down, across


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig:
    """config.json's vision_config. Lists have an entry for each stage."""

    in_channels: Size = 3
    depths: list[int] = field(default_factory=lambda: [1, 1, 9, 1])
    patch_size: list[int] = field(default_factory=lambda: [7, 3, 3, 3])
    patch_stride: list[int] = field(default_factory=lambda: [4, 2, 2, 2])
    patch_padding: list[int] = field(default_factory=lambda: [3, 1, 1, 1])
    patch_prenorm: list[bool] = field(default_factory=lambda: [False, True, True, True])
    embed_dim: list[int] = field(default_factory=lambda: [128, 256, 512, 1024])
    num_heads: list[int] = field(default_factory=lambda: [4, 8, 16, 32])
    num_groups: list[int] = field(default_factory=lambda: [4, 8, 16, 32])
    window_size: Size = 12
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    activation_function: str = "gelu"
    projection_dim: Size = 1024
    max_temporal_embeddings: Size = 100
    max_position_embeddings: Size = 50

    @property
    def stages(self) -> tuple[Stage, ...]:
        """In order. CheckpointError where the lists make none."""
        sizes = (self.depths, self.patch_size, self.patch_stride, self.embed_dim, self.num_heads, self.num_groups)
        lists = (*sizes, self.patch_padding, self.patch_prenorm)
        if len({len(each) for each in lists}) != 1 or not all(isinstance(n, int) for each in lists for n in each):
            raise CheckpointError(
                f"config.json's vision_config has depths={self.depths}; give all lists for each stage"
            )
        if not self.depths or min(map(min, sizes)) < 1 or min(self.patch_padding) < 0:
            raise CheckpointError(f"config.json's vision_config has {sizes[1:]}; all of them should be above 0")
        channels = (self.in_channels, *self.embed_dim)
        styles = map(self._style, range(len(self.depths)))
        convolutions = (self.patch_size, self.patch_stride, self.patch_padding, self.patch_prenorm)
        return tuple(map(Stage, channels, *convolutions, self.num_groups, styles))

    def _style(self, stage: int) -> Style:
        d, heads, groups = self.embed_dim[stage], self.num_heads[stage], self.num_groups[stage]
        if d % heads or d % groups:
            raise CheckpointError(
                f"config.json: stage {stage}'s {d} is no multiple of {heads} heads and {groups} groups"
            )
        return Style(
            layers=self.depths[stage],
            d=d,
            heads=heads,
            head_dim=d // heads,
            ffn=int(self.mlp_ratio * d),
            activation=activation(self.activation_function),
            scale=(d // heads) ** -0.5,
            pre_norm=True,
            attention_bias=(self.qkv_bias, self.qkv_bias, self.qkv_bias, True),
        )

    def rows(self, height: int, width: int) -> int | None:
        """Of an image of so many pixels, one more for the whole of it; None where there are no positions for them."""
        grid = (height, width)
        for stage in self.stages:
            grid = stage.grid(grid)
        return grid[0] * grid[1] + 1 if min(grid) > 0 and max(grid) <= self.max_position_embeddings else None


@dataclass(frozen=True, slots=True)
class Florence2Config:
    """vision: the tower's part. text: BART's own view of its part. side: pixels of the largest square image."""

    vision: VisionConfig
    text: Any
    side: int


def read(raw: Mapping[str, Any]) -> Florence2Config:
    """The view of config.json. Raises CheckpointError on what no model can be made of."""
    vision = view(VisionConfig, older.today(_part(raw, "vision_config")), "config.json's vision_config")
    family = find(TEXT)
    text = family.config({**_text(raw), "tie_word_embeddings": raw.get("tie_word_embeddings", True)})
    spec = family.spec(text)
    if vision.projection_dim != spec.heads * spec.head_dim:
        raise CheckpointError(
            f"config.json has projection_dim={vision.projection_dim}, and the text's rows are "
            f"{spec.heads * spec.head_dim} wide"
        )
    most = spec.max_source or SIDE**2
    side = next((side for side in range(SIDE, 0, -1) if 0 < (vision.rows(side, side) or 0) < most), None)
    if side is None:
        raise CheckpointError("config.json's vision_config makes no rows of an image that the text has positions for")
    return Florence2Config(vision, text, side)


def _part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = raw.get(name) or {}
    if not isinstance(part, dict):
        raise CheckpointError(f"config.json has {name}={part!r}; it should be an object")
    return part


def _text(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    text = _part(raw, "text_config")
    if text.get("model_type", TEXT) not in {TEXT, older.TEXT}:
        raise CheckpointError(f"config.json's text_config has model_type={text['model_type']!r}; {TEXT!r} is supported")
    return text
