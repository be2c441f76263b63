"""Llama 3.2 Vision: text with images in between."""

from collections.abc import Mapping

from transduce.models.base import Family
from transduce.models.mllama.config import read
from transduce.models.mllama.model import build, spec
from transduce.models.mllama.processor import processor

MODULES: Mapping[str, tuple[str, ...]] = {
    "cross_attn": ("encoder_attn",),
    "o_proj": ("out_proj",),
    "mlp": (),
    "gate_proj": ("gate",),
    "up_proj": ("fc1",),
    "down_proj": ("fc2",),
    "input_layernorm": ("attn_layer_norm",),
    "post_attention_layernorm": ("final_layer_norm",),
    "cross_attn_attn_gate": ("attn_gate",),
    "cross_attn_mlp_gate": ("ffn_gate",),
}


def rename(name: str) -> str | None:
    """The checkpoint's names, from before transformers 5 or after, to the stacks'."""
    match name.removeprefix("model.").split("."):
        case ["language_model", "model", *parts] | ["language_model", *parts]:
            side = [] if parts[0] == "lm_head" else ["decoder"]
        case ["vision_model", *parts]:
            side = ["vision"]
        case ["multi_modal_projector", *parts]:
            side = ["projector"]
        case parts:
            side = []
    if side == ["decoder"] and parts[0] == "norm":
        parts = ["layer_norm", *parts[1:]]
    return ".".join([*side, *(new for part in parts for new in MODULES.get(part, (part,)))])


FAMILY = Family(
    config=read,
    spec=spec,
    build=build,
    rename=rename,
    processor=processor,
    architectures=frozenset({"MllamaForConditionalGeneration"}),
)
