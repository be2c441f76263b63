"""config.json of a Llama 3.2 Vision checkpoint: what the vision tower and the text decoder are like."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from transduce.errors import CheckpointError
from transduce.layers.rotary import Stretch, frequencies
from transduce.models.config import Size, activation, view, with_rope
from transduce.stacks.style import Style

EXTRA = 8
"""Embeddings beyond the vocabulary, of tokens that are read and never written, such as the image's."""

RATIOS = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig:
    """vision_config. supported_aspect_ratios: tiles one above another, and side by side."""

    hidden_size: Size = 1280
    hidden_act: str = "gelu"
    num_hidden_layers: Size = 32
    num_global_layers: Size = 8
    attention_heads: Size = 16
    num_channels: Size = 3
    intermediate_size: Size = 5120
    image_size: Size = 448
    patch_size: Size = 14
    norm_eps: float = 1e-5
    max_num_tiles: Size = 4
    intermediate_layers_indices: list[int] = field(default_factory=lambda: [3, 7, 15, 23, 30])
    supported_aspect_ratios: list[list[int]] = field(default_factory=lambda: [[*ratio] for ratio in RATIOS])

    @property
    def ratios(self) -> tuple[tuple[int, int], ...]:
        """How many tiles an image may have (above one another, side by side); the tables' rows follow this order."""
        return tuple((down, across) for down, across in self.supported_aspect_ratios)

    @property
    def rows(self) -> int:
        """Of a tile: its patches, and one for all of it."""
        return (self.image_size // self.patch_size) ** 2 + 1

    @property
    def width(self) -> int:
        """Of an encoded row: what comes out, beside what came out of some layers."""
        return self.hidden_size * (1 + len(self.intermediate_layers_indices))

    @property
    def style(self) -> Style:
        """Both transformers' layers."""
        head_dim = self.hidden_size // self.attention_heads
        return Style(
            layers=self.num_hidden_layers,
            d=self.hidden_size,
            heads=self.attention_heads,
            head_dim=head_dim,
            ffn=self.intermediate_size,
            activation=activation(self.hidden_act),
            scale=head_dim**-0.5,
            pre_norm=True,
            eps=self.norm_eps,
            attention_bias=(False, False, False, False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig:
    """text_config, the rope parameters among its fields."""

    vocab_size: Size = 128256
    hidden_size: Size = 4096
    hidden_act: str = "silu"
    num_hidden_layers: Size = 40
    num_attention_heads: Size = 32
    num_key_value_heads: Size = 8
    intermediate_size: Size = 14336
    rms_norm_eps: float = 1e-5
    max_position_embeddings: Size = 131072
    cross_attention_layers: list[int] = field(default_factory=lambda: [3, 8, 13, 18, 23, 28, 33, 38])
    rope_type: str = "default"
    rope_theta: float = 500000.0
    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: Size = 8192

    @property
    def head_dim(self) -> int:
        """Dimensions of a head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def style(self) -> Style:
        """The layers, of both kinds."""
        return Style(
            layers=self.num_hidden_layers,
            d=self.hidden_size,
            heads=self.num_attention_heads,
            kv_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            ffn=self.intermediate_size,
            activation=activation(self.hidden_act),
            scale=self.head_dim**-0.5,
            pre_norm=True,
            norm="rms",
            eps=self.rms_norm_eps,
            bias=False,
            attention_bias=(False, False, False, False),
            gated=True,
        )

    @property
    def frequencies(self) -> Tensor:
        """Of the rotary positions: [head_dim / 2]."""
        plain = frequencies(self.head_dim, self.rope_theta)
        if self.rope_type == "default":
            return plain
        stretch = Stretch(
            self.factor, self.low_freq_factor, self.high_freq_factor, self.original_max_position_embeddings
        )
        return stretch(plain)


@dataclass(frozen=True, slots=True)
class MllamaConfig:
    """Both parts, and the token that stands for an image in a prompt."""

    vision: VisionConfig
    text: TextConfig
    image_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    vision_config: dict[str, Any] = field(default_factory=dict)
    text_config: dict[str, Any] = field(default_factory=dict)
    image_token_index: int = 128256


def read(raw: Mapping[str, Any]) -> MllamaConfig:
    """The view of config.json. Raises CheckpointError on what no model can be made of."""
    whole = view(_Whole, raw)
    vision = view(VisionConfig, whole.vision_config)
    text = view(TextConfig, with_rope(whole.text_config))
    _check_vision(vision)
    _check_text(text)
    return MllamaConfig(vision, text, whole.image_token_index)


def _check_vision(config: VisionConfig) -> None:
    _check_heads("vision_config", config.hidden_size, config.attention_heads)
    _check_layers("intermediate_layers_indices", config.intermediate_layers_indices, config.num_hidden_layers)
    for ratio in config.supported_aspect_ratios:
        match ratio:
            case [int(down), int(across)] if down > 0 < across and down * across <= config.max_num_tiles:
                continue
        raise CheckpointError(
            f"config.json has {ratio!r} among supported_aspect_ratios; each should be two numbers of tiles, of which "
            f"there are {config.max_num_tiles} at most"
        )


def _check_text(config: TextConfig) -> None:
    _check_heads("text_config", config.hidden_size, config.num_attention_heads)
    if config.num_attention_heads % config.num_key_value_heads:
        raise CheckpointError(
            f"config.json has num_attention_heads={config.num_attention_heads}, which is not a multiple of "
            f"num_key_value_heads={config.num_key_value_heads}"
        )
    crossing = config.cross_attention_layers
    _check_layers("cross_attention_layers", crossing, config.num_hidden_layers)
    if not 0 < len(set(crossing)) < config.num_hidden_layers:
        raise CheckpointError(f"config.json has cross_attention_layers={crossing}; some layers should be, and not all")
    if config.rope_type not in {"default", "llama3"}:
        raise CheckpointError(f"config.json has rope_type={config.rope_type!r}; it should be 'llama3' or 'default'")


def _check_heads(part: str, d: int, heads: int) -> None:
    if d % (2 * heads):
        raise CheckpointError(f"config.json: {part}'s hidden_size {d} gives {heads} heads no even number of dimensions")


def _check_layers(name: str, named: list[int], layers: int) -> None:
    for layer in named:
        if not isinstance(layer, int) or not 0 <= layer < layers:
            raise CheckpointError(f"config.json has {layer!r} among {name}; the layers are 0 to {layers - 1}")
