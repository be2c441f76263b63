"""The contract between a model family and the rest: Spec, Model, Head, Processor, Family, and how a family is found.

Knows no family by name, no scheduler, no attention kernel. A family is a module `transduce.models.<model_type>`
(hyphens become underscores) that defines `FAMILY`, or an entry point in the group `transduce.models`.
"""

import importlib
import importlib.metadata
import importlib.util
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from transduce import models
from transduce.core.request import EncoderItem, RuleSpec, Scored, Span
from transduce.errors import CheckpointError, RequestError
from transduce.layers.build import Builder
from transduce.layers.step import EncoderBatch, StepInput
from transduce.media.audio import Samples
from transduce.rules.base import LogitsRule

SHARED = frozenset({"base", "config", "parts", "speech", "text", "vision"})
"""Modules beside the families' own."""

Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""

Groups = tuple[tuple[tuple[EncoderItem, ...], ...], tuple[Span, ...]]
"""Encoder inputs, each of one or more items, and which of them the decoder's tokens see."""


class Head(Protocol):
    """Hidden rows to values."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """hidden [reads, d] to values [reads, ...]; for "lm" logits [reads, vocab]."""

    def best(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The greatest value of each row and its index, the lowest of equals: two [reads]."""

    def top_k_lse(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """The k greatest values of each row, best first, their indices, and the log-sum-exp of all.

        float32 and int64 [reads, k], float32 [reads]; k is at most vocab. Of equals the lower index comes first.
        """


@dataclass(frozen=True, slots=True)
class KVGroup:
    """A set of decoder layers whose KV shares one block table per sequence ("self") or encoder input ("cross")."""

    name: str
    layers: int


@dataclass(frozen=True, slots=True)
class Spec:
    """What the engine needs to know of a model, as its config.json has it.

    vocab_size: width of the logits. source_vocab, target_vocab: ids the encoder and the decoder take (exclusive ends;
    source_vocab 0: the encoder takes no ids). max_source, max_target: longest encoder input and decoder sequence in
    tokens, of features in rows; None: no limit. fixed_rows: encoder rows of every item where that is fixed (Whisper:
    1500), else None. feature_shape: of the longest item's features where the encoder takes no ids (Whisper: mels,
    frames). tasks: among "generate", "transcribe". bias: whether attention takes a relative position bias. hidden:
    width of the decoder's rows where the encoder's are of another; None: they are not. beside: most ids that such
    features may have beside them.
    """

    vocab_size: int
    source_vocab: int
    target_vocab: int
    groups: tuple[KVGroup, ...]
    heads: int
    kv_heads: int
    head_dim: int
    max_source: int | None
    max_target: int | None
    fixed_rows: int | None
    tasks: frozenset[str]
    bias: bool = False
    feature_shape: tuple[int, ...] = ()
    hidden: int | None = None
    beside: int = 0


class Model(ABC):
    """A loaded model. `encode` makes rows, `write_cross` turns them into pages, `forward` only ever reads those."""

    spec: Spec
    heads: Mapping[str, Head]

    @abstractmethod
    def encode(self, batch: EncoderBatch) -> Tensor:
        """Encoder output rows [rows, d], items one after another."""

    @abstractmethod
    def write_cross(self, encoded: Tensor, slots: Tensor) -> None:
        """Project rows [rows, d] through every decoder layer's cross K and V; store them at slots [slabs, rows]."""

    @abstractmethod
    def forward(self, step: StepInput) -> Tensor:
        """Decoder hidden rows [tokens, d], final norm included. No host sync, no data-dependent shape."""

    def attention(
        self, queries: Sequence[Tensor], heads: Sequence[tuple[int, int]], tables: Sequence[Sequence[int]], rows: int
    ) -> Tensor:
        """What cross-attention heads (layer, head), in order, look at: float32 [heads, tokens, rows], weights of 1.

        queries: what a forward left in GroupStep.queries, of some tokens. tables: the physical blocks of the encoder
        input that they see, in each slab; of its first `rows` rows. For families whose processors ask for it.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Clock:
    """How a speech model measures time, all but `rate` and `zero` in samples of its audio.

    rate: samples a second. window: what the encoder takes at once. frame: windows start at multiples of it. step: from
    one timestamp to the next. zero: the token of timestamp 0; those of later ones follow it, and no text token does: a
    model that writes none has the end of its vocabulary there.
    """

    rate: int
    window: int
    frame: int
    step: int
    zero: int


@dataclass(frozen=True, slots=True)
class Spoken:
    """Text tokens whose times are asked for, in order, and of how many encoder rows, the first ones, the audio is."""

    tokens: tuple[int, ...]
    rows: int


class Processor(ABC):
    """One family's way from text and media to ids and encoder items. Each method raises RequestError on bad input."""

    media: str | None
    """The `multi_modal_data` key of the encoder's input ("audio"); None: the encoder's input is text or ids."""

    interleaved: bool = False
    """Whether media stand within the decoder's prompt, any number of them; else one is all the encoder is given."""

    prompted: bool = False
    """Whether the encoder reads a prompt beside its media; else the prompt is the decoder's."""

    language: str | None = None
    """The only language that a speech model knows, as a code such as "en"; None: it knows several, or hears nothing."""

    tokenizer: Any
    """The checkpoint's transformers tokenizer; None with `skip_tokenizer_init`."""

    @abstractmethod
    def source_ids(self, text: str) -> list[int]:
        """Encoder token ids of a text, special tokens included."""

    def target_ids(self, text: str) -> list[int]:
        """Decoder token ids of a whole answer as the model learns it, special tokens included but the start token."""
        raise RequestError(f"this model's answers are not scored; leave out the target {text!r}")

    @abstractmethod
    def item(self, source: object) -> EncoderItem:
        """One encoder item from token ids (text families) or from `audio` as media/audio.py takes it."""

    def grouped(self, start: Sequence[int], items: Sequence[EncoderItem]) -> Groups:
        """How the items of one prompt become encoder inputs, for a decoder that starts from the ids `start`."""
        return (tuple(items),), (Span(0, 0, sum(item.rows for item in items)),)

    def rules(self, start: Sequence[int], options: Mapping[str, object]) -> tuple[RuleSpec, ...]:
        """Logits rules that the options imply, for a decoder that starts from the ids `start`."""
        return ()

    def decoding(self, skip_special_tokens: bool, options: Mapping[str, object]) -> Decode | None:
        """How new token ids become text; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        return partial(self.tokenizer.decode, skip_special_tokens=skip_special_tokens)

    def parsed(
        self, start: Sequence[int], answer: Sequence[int], text: str | None, size: tuple[int, int] | None
    ) -> object:
        """What a whole answer says, as JSON has it, where the model writes markup; None where it does not.

        start: the ids that the decoder started from. answer: its new ones. text: what the encoder read, if that is
        known. size: width and height of the image, if there is one.
        """
        return None

    def updated(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the checkpoint asks of generation, with today's fields where it has the family's older ones."""
        return fields

    @property
    def clock(self) -> Clock:
        """How the model measures time, if it writes timestamps."""
        raise RequestError("this model writes no timestamps; its audio is not cut at them")

    def level(self, pieces: Iterable[Samples]) -> float:
        """What the features of a recording's excerpts owe to the whole of it, a number of the family's own.

        pieces: the recording, as `media.audio.stream` gives it, of which little is to be held.
        """
        raise RequestError("this model takes no excerpts of recordings")

    def probe(self, start: Sequence[int], options: Mapping[str, object]) -> Scored | None:
        """What the options ask about the ids `start` from which the decoder starts: how likely there is no speech, or
        when a text is spoken.
        """
        return None

    @abstractmethod
    def decoder_ids(self, prompt: str | Sequence[int] | None, options: Mapping[str, object]) -> tuple[int, ...]:
        """Decoder tokens to start from, start token included; `options` such as language and task are the family's."""


@dataclass(frozen=True, slots=True, eq=False)
class Foreign:
    """A folder of CTranslate2's: its config.json, its vocabulary by id, and the variables and settings of model.bin.

    A variable of int8 stands beside a `…_scale` [out], as quant/int8.py has it; other integers are settings.
    """

    config: Mapping[str, Any]
    vocabulary: Sequence[str]
    variables: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Converted:
    """The same in transformers' terms: what would be in config.json and generation_config.json, and the weights."""

    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class CTranslate2:
    """The one revision of a layout of variables that a family reads, and how."""

    revision: int
    convert: Callable[[Foreign], Converted]


@dataclass(frozen=True, slots=True)
class Family:
    """What a family module offers.

    config: the view of config.json (a dict) the family works with; raises CheckpointError on what it cannot do.
    rename: checkpoint tensor name to the name the model asks for; None: the tensor is not used.
    processor: (folder, config, what the checkpoint asks of generation, tokenizer or None) -> Processor.
    rules: the family's own logits rules.
    keep: patterns over the layers that suffer from quantization: they are left out of it where the user says nothing.
    ctranslate2: how its models in CTranslate2's format are read; None: they are not.
    """

    config: Callable[[Mapping[str, Any]], Any]
    spec: Callable[[Any], Spec]
    build: Callable[[Any, Builder], Model]
    rename: Callable[[str], str | None]
    processor: Callable[[Path, Any, Mapping[str, Any], Any], Processor]
    architectures: frozenset[str] = field(default_factory=frozenset)
    rules: tuple[type[LogitsRule[Any]], ...] = ()
    keep: tuple[str, ...] = ()
    ctranslate2: CTranslate2 | None = None


def find(model_type: str) -> Family:
    """The family for config.json's `model_type`; CheckpointError names the known ones."""
    name = model_type.replace("-", "_")
    if name.isidentifier() and importlib.util.find_spec(f"transduce.models.{name}") is not None:
        family = getattr(importlib.import_module(f"transduce.models.{name}"), "FAMILY", None)
        if isinstance(family, Family):
            return family
    for entry in importlib.metadata.entry_points(group="transduce.models", name=model_type):
        loaded = entry.load()
        assert isinstance(loaded, Family), f"entry point {entry.value} is not a Family"
        return loaded
    raise CheckpointError(f"model_type {model_type!r} is not supported; known: {', '.join(known())}")


def known() -> list[str]:
    """Model types that can be found, sorted."""
    own = {each.name for each in pkgutil.iter_modules(models.__path__)} - SHARED
    return sorted({*own, *importlib.metadata.entry_points(group="transduce.models").names})
