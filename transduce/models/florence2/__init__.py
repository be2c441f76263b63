"""Florence-2: an image and a text with a task, read together, to text with places in the image."""

from transduce.models.base import Family
from transduce.models.florence2 import older
from transduce.models.florence2.config import read
from transduce.models.florence2.model import build, spec
from transduce.models.florence2.processor import processor

PARTS = {"model.language_model": "", "model.vision_tower": "vision.", "model.multi_modal_projector": "projector."}


def rename(name: str) -> str | None:
    """The checkpoint's names, transformers' or older ones, to the model's."""
    for part, new in PARTS.items():
        if name.startswith(f"{part}."):
            return new + name.removeprefix(f"{part}.")
    return older.rename(name)


FAMILY = Family(
    config=read,
    spec=spec,
    build=build,
    rename=rename,
    processor=processor,
    architectures=frozenset({"Florence2ForConditionalGeneration"}),
)
