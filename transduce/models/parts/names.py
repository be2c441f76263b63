"""Names of tensors: of BERT's relatives, among them ViT and Swin, and of BART's decoders, to the stacks'."""

import re

UNUSED = re.compile(r"(^|\.)pooler\.|(mask_token|relative_position_index|position_ids|_float_tensor)$")
"""Tensors that nothing is computed of when text is generated, or that are computed anew."""

RENAMES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"^(roberta|bert)\.", ""),
        (r"^(encoder|model\.decoder)\.", ""),
        (r"\blayer\.(\d)", r"layers.\1"),
        (r"\bcrossattention\.output\.LayerNorm", "encoder_attn_layer_norm"),
        (r"\battention\.output\.LayerNorm|\blayernorm_before", "self_attn_layer_norm"),
        (r"\boutput\.LayerNorm|\blayernorm_after", "final_layer_norm"),
        (r"\bcrossattention\.(self\.)?", "encoder_attn."),
        (r"\battention\.((self|attention|relative_position_bias)\.)?", "self_attn."),
        (r"_attn\.(output\.dense|o_proj)", "_attn.out_proj"),
        (r"_attn\.(q|k|v)(uery|ey|alue)\b", r"_attn.\1_proj"),
        (r"\b(intermediate\.dense|mlp\.fc1)", "fc1"),
        (r"\b(output\.dense|mlp\.fc2)", "fc2"),
        (r"^layernorm\.", "layer_norm."),
        (r"^cls\.predictions\.(transform\.)?", "lm_head."),
        (r"^(lm_head\.decoder|output_projection)\.weight", "lm_head.weight"),
        (r"^lm_head\.LayerNorm", "lm_head.layer_norm"),
    )
)


def rename(name: str) -> str | None:
    """A part's tensor as the stacks ask for it; None where it is not used."""
    if UNUSED.search(name):
        return None
    for pattern, new in RENAMES:
        name = pattern.sub(new, name)
    return name
