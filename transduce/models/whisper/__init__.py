"""Whisper, of every size, English-only and multilingual."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transduce.errors import CheckpointError
from transduce.models.base import CTranslate2, Family
from transduce.models.config import GENERATION, preprocessor, start_token, view
from transduce.models.whisper.ctranslate2 import convert
from transduce.models.whisper.model import WhisperConfig, build, spec
from transduce.models.whisper.older import updated
from transduce.models.whisper.processor import TASKS, Prompt, WhisperProcessor, feature_extractor
from transduce.models.whisper.rules import Timestamps

logger = logging.getLogger(__name__)


def rename(name: str) -> str | None:
    """The stacks' names are Whisper's own."""
    return name.removeprefix("model.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """What generation_config.json of a Whisper checkpoint says about prompts."""

    is_multilingual: bool | None = None
    language: str | None = None
    task: str | None = None
    max_initial_timestamp_index: int | None = None


def _processor(folder: Path, config: WhisperConfig, fields: Mapping[str, Any], tokenizer: Any) -> WhisperProcessor:
    said = view(Directions, fields, GENERATION)
    multilingual = config.multilingual if said.is_multilingual is None else said.is_multilingual
    if multilingual and tokenizer is not None:
        said = view(Directions, updated(tokenizer, fields, TASKS), GENERATION)
    prompt = Prompt(
        start=start_token(fields),
        multilingual=multilingual,
        language=said.language,
        task=said.task or "transcribe",
        previous=config.max_target_positions // 2 - 1,
        first_timestamp=said.max_initial_timestamp_index,
        positions=config.max_target_positions,
        heads=_alignment_heads(fields.get("alignment_heads"), config),
    )
    sized = partial(feature_extractor, mels=config.num_mel_bins, rows=config.max_source_positions)
    return WhisperProcessor(tokenizer, preprocessor(folder, sized), prompt)


def _alignment_heads(named: object, config: WhisperConfig) -> tuple[tuple[int, int], ...]:
    """As the checkpoint names them, else all heads of the later half of the layers, as openai/whisper has it.

    A distilled model may have kept the names of its teacher's, which it has not.
    """
    layers, heads = config.decoder_layers, config.decoder_attention_heads
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    usual = tuple((layer, head) for layer, head in every if layer >= layers // 2)
    if not named:
        return usual
    if not isinstance(named, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in named):
        raise CheckpointError(f"{GENERATION} has alignment_heads={named!r}; give [layer, head] pairs")
    if any(pair not in map(list, every) for pair in named):
        logger.warning("%s: the decoder lacks some of alignment_heads=%s; its later half is taken", GENERATION, named)
        return usual
    return tuple(pair for pair in every if list(pair) in named)


FAMILY = Family(
    config=lambda raw: view(WhisperConfig, raw),
    spec=spec,
    build=build,
    rename=rename,
    processor=_processor,
    architectures=frozenset({"WhisperForConditionalGeneration"}),
    rules=(Timestamps,),
    ctranslate2=CTranslate2(revision=3, convert=convert),
)
