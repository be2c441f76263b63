"""config.json of a VisionEncoderDecoder: a part for each side, which is read as the model_type in it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transduce.errors import CheckpointError
from transduce.models.config import view
from transduce.models.parts import ImageConfig, ImageEncoder, TextConfig, TextDecoder, decoder, encoder


@dataclass(frozen=True, slots=True)
class VisionEncoderDecoderConfig:
    """Both parts and the views of their configs. starts: whether the start token stands in front of prompts."""

    encoder: ImageEncoder
    image: ImageConfig
    decoder: TextDecoder
    text: TextConfig
    starts: bool

    @property
    def projected(self) -> bool:
        """Whether there is a layer between the encoder's rows and a decoder of another width."""
        return self.text.style.encoded is None and self.image.width != self.text.style.d


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    encoder: dict[str, Any]
    decoder: dict[str, Any]


def read(raw: Mapping[str, Any]) -> VisionEncoderDecoderConfig:
    """The view of config.json. Raises CheckpointError on what no model can be made of."""
    whole = view(_Whole, {"encoder": None, "decoder": None, **raw})
    image, text = encoder(whole.encoder), decoder(whole.decoder)
    # Donut's prompts begin with a token of their own.
    starts = whole.encoder["model_type"] != "donut-swin"
    config = VisionEncoderDecoderConfig(image, image.config(whole.encoder), text, text.config(whole.decoder), starts)
    if config.text.style.encoded not in {None, config.image.width}:
        raise CheckpointError(
            f"config.json's decoder has cross_attention_hidden_size={config.text.style.encoded}; "
            f"the encoder's rows are {config.image.width} wide"
        )
    return config
