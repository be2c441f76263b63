"""Florence-2 as Microsoft published it, for code of its own: in today's terms.

Owns what differs: names of tensors and of fields, and the tokens that its code added.
"""

import re
from collections.abc import Mapping
from typing import Any

from transduce.errors import CheckpointError

TEXT = "florence2_language"
"""What it calls a BART."""

RENAMES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"^language_model\.(model\.)?", ""),
        (r"^(image_proj|visual_temporal_embed)", r"projector.\1"),
        (r"^image_pos_embed\.", "projector.image_position_embed."),
        (r"^vision_tower\.", "vision."),
        (r"^(vision\.convs\.\d+)\.proj\.", r"\1.conv."),
        (r"\.conv([12])\.fn\.dw\.", r".conv\1."),
        (r"\.(window|channel)_attn\.norm\.", ".norm1."),
        (r"_attn\.fn\.", "_attn."),
        (r"\.ffn\.norm\.", ".norm2."),
        (r"\.ffn\.fn\.net\.", ".ffn."),
    )
)

SUPPORTED: Mapping[str, object] = {
    "image_feature_source": ["spatial_avg_pool", "temporal_avg_pool"],
    "image_pos_embed": {"type": "learned_abs_2d"},
    "visual_temporal_embedding": {"type": "COSINE"},
}
"""What the code could be told about the projector, and what transformers kept of that."""

IMAGE = "<image>"
NAMED = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
PAIRED = ("cap", "ncap", "dcap", "grounding", "seg")
TOKENS = (
    *("<od>", "</od>", "<ocr>", "</ocr>"),
    *(f"<loc_{place}>" for place in range(1000)),
    *(f"<{end}{name}>" for name in PAIRED for end in ("", "/")),
    *("<sep>", "<region_cap>", "</region_cap>", "<region_to_desciption>", "</region_to_desciption>"),
    *("<proposal>", "</proposal>", "<poly>", "</poly>", "<and>"),
)
"""In the order of their ids, behind BART's."""


def rename(name: str) -> str:
    """A tensor's name in the model."""
    for pattern, new in RENAMES:
        name = pattern.sub(new, name)
    return name


def today(vision: Mapping[str, Any]) -> Mapping[str, Any]:
    """A vision_config as transformers has it. CheckpointError where it asks for what is not supported."""
    if "dim_embed" not in vision:
        return vision
    for name, known in SUPPORTED.items():
        said = vision.get(name, known)
        if said != known and not (isinstance(said, dict) and isinstance(known, dict) and said | known == said):
            raise CheckpointError(f"config.json's vision_config has {name}={said!r}; {known!r} is supported")
    positions, times = (vision.get(name, {}) for name in ("image_pos_embed", "visual_temporal_embedding"))
    return {
        "max_position_embeddings": positions.get("max_pos_embeddings", 50),
        "max_temporal_embeddings": times.get("max_temporal_embeddings", 100),
        **vision,
        "embed_dim": vision["dim_embed"],
    }


def complete(tokenizer: Any) -> None:
    """Add what the code added, and say which tokens are special."""
    if IMAGE in tokenizer.get_vocab():
        return
    tokenizer.add_special_tokens({**NAMED, "extra_special_tokens": [*TOKENS, IMAGE]})
    tokenizer.image_token, tokenizer.image_token_id = IMAGE, tokenizer.convert_tokens_to_ids(IMAGE)
