"""Inputs of a VisionEncoderDecoder, and what its answers say: images by the checkpoint's preprocessor, decoder prompts.

Owns when a start token stands before a prompt. Knows no file format.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image
from transformers.image_processing_backends import PilBackend

from transduce.core.request import EncoderItem
from transduce.errors import CheckpointError, MediaError
from transduce.media import image
from transduce.models.config import PREPROCESSOR, inherited, start_token
from transduce.models.text import TextProcessor
from transduce.models.vision import ImageTextProcessor, pil_preprocessor
from transduce.models.vision_encoder_decoder import markup
from transduce.models.vision_encoder_decoder.config import VisionEncoderDecoderConfig


class VisionEncoderDecoderProcessor(ImageTextProcessor):
    """One image for the encoder; the prompt, if there is one, is the decoder's."""

    def __init__(
        self, tokenizer: Any, start: int | None, preprocessor: PilBackend, config: VisionEncoderDecoderConfig
    ) -> None:
        super().__init__(tokenizer, start)
        self._preprocessor = preprocessor
        self._config = config
        self._prompted = self if config.starts else TextProcessor(tokenizer, None)

    def item(self, source: object) -> EncoderItem:
        """An image in RGB, as the checkpoint's preprocessor makes it. MediaError where it comes out in another size."""
        picture, expected = image.load(cast(image.Image, source)), self._config.image
        pixels = self.pixels(picture)
        if pixels.shape != expected.shape:
            raise MediaError(
                f"image of {picture.width} x {picture.height} pixels becomes {pixels.shape}, and the model takes "
                f"{expected.shape}; scale it"
            )
        return EncoderItem(pixels, rows=expected.rows, cost=expected.rows)

    def pixels(self, picture: Image.Image) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Its pixels [channels, height, width]."""
        (pixels,) = self._preprocessor(images=picture, return_tensors="np")["pixel_values"]
        return np.asarray(pixels, np.float32)

    def decoder_ids(self, prompt: str | Sequence[int] | None, options: Mapping[str, object]) -> tuple[int, ...]:
        """As in Processor. The start token stands in front, but not of a prompt of Donut's; there are no options."""
        return TextProcessor.decoder_ids(self._prompted if prompt else self, prompt, options)

    def updated(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return inherited(fields, "decoder")

    def parsed(
        self, start: Sequence[int], answer: Sequence[int], text: str | None, size: tuple[int, int] | None
    ) -> object:
        return markup.parsed(self._preprocessor, self.tokenizer, start, answer)


def processor(
    folder: Path, config: VisionEncoderDecoderConfig, generation: Mapping[str, Any], tokenizer: Any
) -> VisionEncoderDecoderProcessor:
    """The processor of a checkpoint, as Family asks for it."""
    made = VisionEncoderDecoderProcessor(
        tokenizer, start_token(inherited(generation, "decoder")), pil_preprocessor(folder), config
    )
    _check(made, config)
    return made


def _check(processor: VisionEncoderDecoderProcessor, config: VisionEncoderDecoderConfig) -> None:
    """What the preprocessor makes fits the model."""
    channels, height, width = config.image.shape
    shape = processor.pixels(Image.new("RGB", (width, height))).shape
    if shape != config.image.shape:
        raise CheckpointError(
            f"{PREPROCESSOR} makes pixels {list(shape)}; config.json's encoder takes {[channels, height, width]}: "
            "give the same size in both"
        )
