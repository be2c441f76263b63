"""Halves of models that composites are made of: image encoders and text decoders, found by their own model_type.

A part is a module `transduce.models.parts.<model_type>` (hyphens become underscores) that defines ENCODER or DECODER.
Owns the contract between a part and a composite. A part knows no composite.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import Tensor

from transduce.errors import CheckpointError
from transduce.layers.build import Builder
from transduce.layers.embedding import TokenEmbedding
from transduce.layers.step import StepInput
from transduce.models.text import LMHead
from transduce.stacks.decoder import DecoderStack
from transduce.stacks.style import Style

P = TypeVar("P")

Tower = Callable[[Sequence[Tensor]], Tensor]
"""Images [channels, height, width] each, to their rows [all rows, width]; an image's rows know no other image."""


class ImageConfig(Protocol):
    """What a composite asks of an image encoder's config."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the pixels of an image: channels, height, width."""

    @property
    def rows(self) -> int:
        """That an image becomes."""

    @property
    def width(self) -> int:
        """Of a row."""


class TextConfig(Protocol):
    """What a composite asks of a text decoder's config."""

    @property
    def vocab_size(self) -> int:
        """Tokens."""

    @property
    def positions(self) -> int:
        """Most tokens of a sequence."""

    @property
    def style(self) -> Style:
        """The stack's."""


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """A loaded text decoder. last: what its hidden rows [tokens, d] go through before the head, if there is more."""

    input: TokenEmbedding
    stack: DecoderStack
    last: Callable[[Tensor], Tensor] | None
    head: LMHead

    def __call__(self, step: StepInput) -> Tensor:
        """One step's tokens to hidden rows [tokens, d]."""
        x = self.stack(self.input(step.tokens, step.positions), step)
        return x if self.last is None else self.last(x)


@dataclass(frozen=True, slots=True)
class ImageEncoder:
    """config: the view of its part of config.json; raises CheckpointError on what it cannot do. build: the tower."""

    config: Callable[[Mapping[str, Any]], ImageConfig]
    build: Callable[[Any, Builder], Tower]


@dataclass(frozen=True, slots=True)
class TextDecoder:
    """config, build: as for ImageEncoder."""

    config: Callable[[Mapping[str, Any]], TextConfig]
    build: Callable[[Any, Builder], Decoder]


def encoder(raw: Mapping[str, Any]) -> ImageEncoder:
    """The image encoder that a part of config.json describes; CheckpointError where there is none."""
    return _find(raw, "ENCODER", ImageEncoder, "encoder")


def decoder(raw: Mapping[str, Any]) -> TextDecoder:
    """The text decoder that a part of config.json describes; CheckpointError where there is none."""
    return _find(raw, "DECODER", TextDecoder, "decoder")


def _find(raw: Mapping[str, Any], attribute: str, kind: type[P], name: str) -> P:
    model_type = raw.get("model_type")
    path = f"{__name__}.{str(model_type).replace('-', '_')}"
    if path.rpartition(".")[2].isidentifier() and importlib.util.find_spec(path) is not None:
        part = getattr(importlib.import_module(path), attribute, None)
        if isinstance(part, kind):
            return part
    raise CheckpointError(f"config.json has {name} with model_type={model_type!r}, which is not supported")
