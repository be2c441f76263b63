"""Moonshine, tiny and base: speech of any length, without windows, padding or timestamps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.models.base import Family
from transduce.models.config import preprocessor, start_token
from transduce.models.moonshine.model import MoonshineConfig, build, read, spec
from transduce.models.moonshine.processor import MoonshineProcessor, feature_extractor

NORMS: Mapping[tuple[str, str], str] = {
    ("encoder", "input_layernorm"): "self_attn_layer_norm",
    ("encoder", "post_attention_layernorm"): "final_layer_norm",
    ("decoder", "input_layernorm"): "self_attn_layer_norm",
    ("decoder", "post_attention_layernorm"): "encoder_attn_layer_norm",
    ("decoder", "final_layernorm"): "final_layer_norm",
}


def rename(name: str) -> str | None:
    """Moonshine's names to the stacks'."""
    match name.removeprefix("model.").split("."):
        case [side, "layers", layer, norm, leaf] if (side, norm) in NORMS:
            return f"{side}.layers.{layer}.{NORMS[side, norm]}.{leaf}"
        case [side, "layers", layer, "mlp", linear, leaf]:
            return f"{side}.layers.{layer}.{linear}.{leaf}"
        case [side, "layers", layer, attention, "o_proj", leaf]:
            return f"{side}.layers.{layer}.{attention}.out_proj.{leaf}"
        case ["decoder", "norm", leaf]:
            return f"decoder.layer_norm.{leaf}"
        case parts:
            return ".".join(parts)


def _processor(
    folder: Path, config: MoonshineConfig, generation: Mapping[str, Any], tokenizer: Any
) -> MoonshineProcessor:
    return MoonshineProcessor(tokenizer, start_token(generation), preprocessor(folder, feature_extractor), config)


FAMILY = Family(
    config=read,
    spec=spec,
    build=build,
    rename=rename,
    processor=_processor,
    architectures=frozenset({"MoonshineForConditionalGeneration"}),
)
