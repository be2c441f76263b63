"""Donut's Swin: without a norm behind the last stage."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from transduce.errors import CheckpointError
from transduce.models.parts import ImageEncoder
from transduce.models.parts.swin import Swin, SwinConfig, read


def _read(raw: Mapping[str, Any]) -> SwinConfig:
    """As Swin's. transformers' own cannot add the positions that it has, one more than there are patches."""
    config = read(raw)
    if config.use_absolute_embeddings:
        raise CheckpointError("config.json has use_absolute_embeddings=true, which no donut-swin can do; give false")
    return config


ENCODER = ImageEncoder(_read, partial(Swin.build, last=False))
