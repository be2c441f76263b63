"""Florence-2 as Microsoft published it, and configs that no model can be made of."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.models.cases import FLORENCE2
from tests.models.harness import TOLERANCE, difference, load, run
from tests.models.tiny import State, checkpoint
from transduce.errors import CheckpointError
from transduce.models.base import find

NAMES = (
    (r"^model\.language_model\.", "language_model.model."),
    (r"^lm_head\.", "language_model.lm_head."),
    (r"^model\.vision_tower\.", "vision_tower."),
    (r"^model\.multi_modal_projector\.image_projection\.weight", "image_projection"),
    (r"^model\.multi_modal_projector\.image_position_embed\.", "image_pos_embed."),
    (r"^model\.multi_modal_projector\.", ""),
    (r"(convs\.\d)\.conv\.", r"\1.proj."),
    (r"(block)\.conv(\d)\.", r"\1.conv\2.fn.dw."),
    (r"(window|channel)_attn\.", r"\1_attn.fn."),
    (r"ffn\.", "ffn.fn.net."),
    (r"spatial_block\.norm1\.", "spatial_block.window_attn.norm."),
    (r"channel_block\.norm1\.", "channel_block.channel_attn.norm."),
    (r"norm2\.", "ffn.norm."),
)
FIELDS: Mapping[str, tuple[str, str]] = {
    "max_position_embeddings": ("image_pos_embed", "max_pos_embeddings"),
    "max_temporal_embeddings": ("visual_temporal_embedding", "max_temporal_embeddings"),
}
TYPES = {"image_pos_embed": "learned_abs_2d", "visual_temporal_embedding": "COSINE"}


def older_state(state: State) -> State:
    """What Microsoft's code calls the tensors; it multiplies by the projection from the other side."""
    made = {_older(name): tensor for name, tensor in state.items()}
    made["image_projection"] = made["image_projection"].T.contiguous()
    return made


def _older(name: str) -> str:
    for pattern, old in NAMES:
        name = re.sub(pattern, old, name)
    return name


def older(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json for that code; mlp_ratio it has none of, but 4."""
    vision = dict(raw["vision_config"])
    for name, (part, within) in FIELDS.items():
        vision[part] = {"type": TYPES[part], within: vision.pop(name)}
    vision["dim_embed"] = vision.pop("embed_dim")
    vision |= {"model_type": "davit", "image_feature_source": ["spatial_avg_pool", "temporal_avg_pool"]}
    return {**raw, "vision_config": vision, "text_config": {**raw["text_config"], "model_type": "florence2_language"}}


def test_older_checkpoints_are_the_same() -> None:
    made = checkpoint(FLORENCE2[0])
    loaded = load(find("florence2"), older(made.raw), older_state(made.state))
    assert not loaded.weights.unknown
    assert "projector.image_projection" in loaded.weights.tensors
    assert difference(run(loaded, made.sources, made.decoder, 99), made.expected) < TOLERANCE


@pytest.mark.parametrize(
    ("vision", "match"),
    [
        ({"depths": [1]}, "give all lists for each stage"),
        ({"patch_stride": [4, 0]}, "all of them should be above 0"),
        ({"num_heads": [3, 3]}, "stage 0's 8 is no multiple of 3 heads and 4 groups"),
        ({"projection_dim": 20}, "projection_dim=20, and the text's rows are 24 wide"),
        ({"patch_padding": [0, 0], "patch_size": [3, 800]}, "no rows of an image"),
        ({"dim_embed": [8, 12], "image_feature_source": ["temporal_avg_pool"]}, "image_feature_source=.* is supported"),
        ({"dim_embed": [8, 12], "image_pos_embed": {"type": "other"}}, "image_pos_embed=.* is supported"),
    ],
)
def test_configs_without_a_model(vision: Mapping[str, Any], match: str) -> None:
    raw = FLORENCE2[0].raw
    with pytest.raises(CheckpointError, match=match):
        find("florence2").config({**raw, "vision_config": {**raw["vision_config"], **vision}})


def test_another_text_is_refused() -> None:
    raw = FLORENCE2[0].raw
    with pytest.raises(CheckpointError, match="text_config has model_type='t5'; 'bart' is supported"):
        find("florence2").config({**raw, "text_config": {"model_type": "t5"}})
