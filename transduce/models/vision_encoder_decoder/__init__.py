"""An image encoder and a text decoder of any two families: TrOCR, Donut, Nougat and captioners."""

from transduce.models.base import Family
from transduce.models.parts.names import rename as renamed
from transduce.models.vision_encoder_decoder.config import read
from transduce.models.vision_encoder_decoder.model import build, spec
from transduce.models.vision_encoder_decoder.processor import processor


def rename(name: str) -> str | None:
    """Each part's names to the stacks'; the projection between them has its own."""
    side, _, within = name.partition(".")
    if side not in {"encoder", "decoder"}:
        return name
    new = renamed(within)
    return None if new is None else f"{side}.{new}"


FAMILY = Family(
    config=read,
    spec=spec,
    build=build,
    rename=rename,
    processor=processor,
    architectures=frozenset({"VisionEncoderDecoderModel"}),
)
