"""transformers' Llama 3.2 Vision as an oracle, with what it gets wrong worked around.

Two things are wrong in 5.24, and one is only so in its quickest mode:
- A token before the first image sees none. The model zeroes its gated feed-forward, by the row mask, but not its gated
  attention: a row of the mask that hides all keys is set to zeros there, which hides none, so that text before an image
  moves with the image. Where cross-attention layers are skipped, as for prompts without an image, both are gone. Here a
  hook puts the row mask to the attention as well (`masked`), so that such a token passes the layer as if skipped.
- With sdpa and no mask its cross-attention is causal over patches. Here attention is eager, and the mask explicit.
- Its cache keeps the images' keys; here nothing is cached, since each pass is of the whole sequence.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers.models.mllama.configuration_mllama import MllamaVisionConfig
from transformers.models.mllama.modeling_mllama import (
    MllamaCrossAttentionDecoderLayer,
    MllamaForConditionalGeneration,
)
from transformers.models.mllama.processing_mllama import (
    convert_sparse_cross_attention_mask_to_dense,
    get_cross_attention_token_mask,
)

Images = Sequence[Tensor]
"""Each [tiles down, tiles across, channels, height, width]."""


def masked(model: MllamaForConditionalGeneration) -> MllamaForConditionalGeneration:
    """The model, with the row mask on its cross-attention too."""
    model.set_attn_implementation("eager")
    for layer in model.model.language_model.layers:
        if isinstance(layer, MllamaCrossAttentionDecoderLayer):
            _mask_attention(layer)
    return model


def _mask_attention(layer: MllamaCrossAttentionDecoderLayer) -> None:
    given: list[Tensor] = []

    def note(_: object, __: object, kwargs: dict[str, Any]) -> None:
        given[:] = [kwargs["full_text_row_masked_out_mask"]]

    def hide(_: object, __: object, out: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return given[0][:, 0] * out[0], out[1]

    layer.register_forward_pre_hook(note, with_kwargs=True)
    layer.cross_attn.register_forward_hook(hide)


def vision(model: MllamaForConditionalGeneration) -> MllamaVisionConfig:
    """The vision tower's config."""
    config = model.config.vision_config
    assert isinstance(config, MllamaVisionConfig)
    return config


def visible(tokens: Sequence[int], images: Images, image_token: int, places: int) -> npt.NDArray[np.int64]:
    """transformers' own mask: which tiles of which image each token sees [tokens, images, places for tiles]."""
    if not images:
        return np.zeros((len(tokens), 0, places), np.int64)
    ranges = get_cross_attention_token_mask(list(tokens), image_token)
    tiles = [[image.shape[0] * image.shape[1] for image in images]]
    (mask,) = convert_sparse_cross_attention_mask_to_dense([ranges], tiles, places, len(tokens))
    return np.asarray(mask, np.int64)


def seen_by_all(tokens: Sequence[int], images: Images, places: int) -> npt.NDArray[np.int64]:
    """A mask in which every token sees every image."""
    mask = np.zeros((len(tokens), len(images), places), np.int64)
    for i, image in enumerate(images):
        mask[:, i, : image.shape[0] * image.shape[1]] = 1
    return mask


@torch.inference_mode()
def answer(
    model: MllamaForConditionalGeneration, tokens: Sequence[int], images: Images, mask: npt.NDArray[np.int64]
) -> tuple[list[Tensor], Tensor]:
    """Each image's rows as the decoder gets them, and the logits of all tokens [tokens, vocab].

    Without images the cross-attention layers are skipped.
    """
    ids = torch.tensor([list(tokens)])
    if not images:
        return [], model(input_ids=ids, use_cache=False).logits[0]
    given = _pixels(model, images)
    whole = model.model.multi_modal_projector(model.model.vision_model(**given).last_hidden_state)[0]
    tiles = [image.shape[0] * image.shape[1] for image in images]
    encoded = [rows[:count].flatten(0, 1) for rows, count in zip(whole, tiles, strict=True)]
    out = model(input_ids=ids, cross_attention_mask=torch.tensor(mask)[None], use_cache=False, **given)
    return encoded, out.logits[0]


def greedy(
    model: MllamaForConditionalGeneration, prompt: Sequence[int], images: Images, count: int, everywhere: bool = False
) -> tuple[list[int], list[Tensor]]:
    """`count` new tokens, and the logits [vocab] from which each was chosen; everywhere: all tokens see all images."""
    tokens, logits, places = list(prompt), list[Tensor](), vision(model).max_num_tiles
    for _ in range(count):
        if everywhere:
            mask = seen_by_all(tokens, images, places)
        else:
            mask = visible(tokens, images, model.config.image_token_index, places)
        logits.append(answer(model, tokens, images, mask)[1][-1])
        tokens.append(int(logits[-1].argmax()))
    return tokens[len(prompt) :], logits


def _pixels(model: MllamaForConditionalGeneration, images: Images) -> dict[str, Tensor]:
    """What the model calls its arguments: tiles in places of which the last may be empty."""
    config = vision(model)
    assert config.supported_aspect_ratios is not None
    ratios = [tuple(ratio) for ratio in config.supported_aspect_ratios]
    size, places = int(str(config.image_size)), config.max_num_tiles
    values = torch.zeros(1, len(images), places, config.num_channels, size, size)
    mask = torch.zeros(1, len(images), places, dtype=torch.int64)
    ids = torch.zeros(1, len(images), dtype=torch.int64)
    for i, image in enumerate(images):
        tiles = image.flatten(0, 1)
        values[0, i, : len(tiles)], mask[0, i, : len(tiles)] = tiles, 1
        ids[0, i] = ratios.index((image.shape[0], image.shape[1])) + 1
    return {"pixel_values": values, "aspect_ratio_ids": ids, "aspect_ratio_mask": mask}
