"""Llama 3.2 Vision's inputs: images to tiles by the checkpoint's own preprocessor, and which token sees which images.

Owns where images stand in a prompt. Knows no file format and no address.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import MllamaImageProcessorPil
from transformers.models.mllama.image_processing_pil_mllama import get_all_supported_aspect_ratios
from transformers.models.mllama.processing_mllama import build_string_from_input

from transduce.core.request import EncoderItem, Span
from transduce.errors import CheckpointError, RequestError
from transduce.media import image
from transduce.models.base import Groups
from transduce.models.config import preprocessor
from transduce.models.mllama.config import MllamaConfig, VisionConfig
from transduce.models.mllama.vision import padded
from transduce.models.text import TextProcessor


class MllamaProcessor(TextProcessor):
    """Images to tiles; decoder prompts with a token for each image, which the tokens behind it see."""

    media = "image"
    interleaved = True

    def __init__(self, tokenizer: Any, tiles: MllamaImageProcessorPil, config: MllamaConfig) -> None:
        super().__init__(tokenizer, None)
        self._tiles = tiles
        self._config = config

    def source_ids(self, text: str) -> list[int]:
        raise RequestError(f"the encoder takes images, not text; give multi_modal_data with an image beside {text!r}")

    def target_ids(self, text: str) -> list[int]:
        raise RequestError(f"this model's answers are not scored; leave out the target {text!r}")

    def item(self, source: object) -> EncoderItem:
        """An image in RGB, cut into tiles [tiles down, tiles across, channels, height, width]."""
        picture = image.load(cast(image.Image, source))
        made = self._tiles(images=picture, return_tensors="np")
        vision = self._config.vision
        down, across = vision.ratios[made["aspect_ratio_ids"][0, 0] - 1]
        pixels = made["pixel_values"][0, 0, : down * across].astype(np.float32)
        rows, cost = down * across * vision.rows, vision.max_num_tiles * padded(vision.rows)
        return EncoderItem(pixels.reshape(down, across, *pixels.shape[1:]), rows=rows, cost=cost)

    def grouped(self, start: Sequence[int], items: Sequence[EncoderItem]) -> Groups:
        """Images whose tokens stand side by side are one input, of which each of their tokens sees what came so far.

        Tokens behind see that input, until another image comes; tokens before the first image see none. Raises
        RequestError where there are not as many tokens as images.
        """
        places = [at for at, token in enumerate(start) if token == self._config.image_token]
        if len(places) != len(items):
            raise RequestError(
                f"the prompt has {len(places)} image tokens and {len(items)} images; give one token for each image"
            )
        groups: list[list[EncoderItem]] = []
        spans = []
        for at, item in zip(places, items, strict=True):
            if at - 1 not in places:
                groups.append([])
            groups[-1].append(item)
            spans.append(Span(at, len(groups) - 1, sum(each.rows for each in groups[-1])))
        return tuple(map(tuple, groups)), tuple(spans)

    def decoder_ids(self, prompt: str | Sequence[int] | None, options: Mapping[str, object]) -> tuple[int, ...]:
        """As in Processor. Token ids stay as they are, there is no start token; there are no options."""
        if not prompt:
            raise RequestError("the prompt is empty; give a text, or token ids")
        return super().decoder_ids(prompt, options)

    def _target_ids(self, text: str) -> tuple[int, ...]:
        """As transformers' processor has it: a BOS behind leading images, and what the tokenizer puts before all."""
        tokenizer = self._tokenizer(text)
        token = tokenizer.convert_ids_to_tokens(self._config.image_token)
        ids = tokenizer(build_string_from_input(text, tokenizer.bos_token, token), verbose=False)["input_ids"]
        return tuple(ids)


def processor(folder: Path, config: MllamaConfig, generation: Mapping[str, Any], tokenizer: Any) -> MllamaProcessor:
    """The processor of a checkpoint, as Family asks for it."""
    tiles = preprocessor(folder, MllamaImageProcessorPil.from_pretrained)
    _check(tiles, config.vision)
    return MllamaProcessor(tokenizer, tiles, config)


def _check(tiles: MllamaImageProcessorPil, vision: VisionConfig) -> None:
    """The tower's tables follow the order of aspect ratios that the preprocessor numbers them by."""
    made = (tiles.size["height"], tiles.size["width"], tuple(get_all_supported_aspect_ratios(tiles.max_image_tiles)))
    if made != (vision.image_size, vision.image_size, vision.ratios):
        raise CheckpointError(
            f"preprocessor_config.json makes up to {tiles.max_image_tiles} tiles of {made[0]} x {made[1]} pixels; "
            f"config.json asks for {vision.max_num_tiles} of {vision.image_size} x {vision.image_size}, in the aspect "
            f"ratios {list(vision.ratios)}"
        )
