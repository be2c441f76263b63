"""What families that see images share: the checkpoint's own preprocessor, by transformers' variant for Pillow alone."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers.image_processing_backends import PilBackend

from transduce.errors import CheckpointError, RequestError
from transduce.models.config import PREPROCESSOR, preprocessor, read_json
from transduce.models.text import TextProcessor

PROCESSOR = "processor_config.json"


class ImageTextProcessor(TextProcessor):
    """Images for the encoder, text for the decoder alone."""

    media = "image"

    def source_ids(self, text: str) -> list[int]:
        raise RequestError(f"the encoder takes images, not text; give multi_modal_data with an image beside {text!r}")

    def target_ids(self, text: str) -> list[int]:
        raise RequestError(f"this model's answers are not scored; leave out the target {text!r}")


def pil_preprocessor(folder: Path) -> PilBackend:
    """The checkpoint's preprocessor. CheckpointError where it names none, or none that needs Pillow alone."""
    return preprocessor(folder, _named)


def _named(folder: Path) -> PilBackend:
    said = _settings(folder)
    name = said.get("image_processor_type") or said.get("feature_extractor_type")  # as older files have it
    base = re.sub("(ImageProcessor(Fast|Pil)?|FeatureExtractor)$", "", str(name))
    named = getattr(transformers, f"{base}ImageProcessorPil", None)
    if named is None:
        raise CheckpointError(
            f"{folder / PREPROCESSOR} has image_processor_type={name!r}, which Pillow alone cannot do"
        )
    made: PilBackend = named.from_pretrained(folder, local_files_only=True)
    return made


def _settings(folder: Path) -> Mapping[str, Any]:
    """The preprocessor's own file, or its part of the file for the whole processor, which goes before."""
    whole = read_json(folder / PROCESSOR) if (folder / PROCESSOR).is_file() else {}
    part = whole.get("image_processor")
    return part if isinstance(part, dict) else read_json(folder / PREPROCESSOR)
