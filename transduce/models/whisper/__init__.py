"""Whisper, of every size, English-only and multilingual."""

from pathlib import Path
from typing import Any

from transduce.models.base import Family
from transduce.models.config import generation_config, view
from transduce.models.whisper.model import WhisperConfig, build, spec
from transduce.models.whisper.processor import Prompt, WhisperProcessor, feature_extractor
from transduce.models.whisper.rules import Timestamps


def rename(name: str) -> str | None:
    """The stacks' names are Whisper's own."""
    return name.removeprefix("model.")


def _processor(folder: Path, config: WhisperConfig, tokenizer: Any) -> WhisperProcessor:
    extractor = feature_extractor(folder, mels=config.num_mel_bins, rows=config.max_source_positions)
    generation = generation_config(folder)
    prompt = Prompt(
        start=generation.get("decoder_start_token_id", config.start),
        multilingual=generation.get("is_multilingual", config.multilingual),
        language=generation.get("language"),
        task=generation.get("task") or "transcribe",
        previous=config.max_target_positions // 2 - 1,
        first_timestamp=generation.get("max_initial_timestamp_index"),
    )
    return WhisperProcessor(tokenizer, extractor, prompt)


FAMILY = Family(
    config=lambda raw: view(WhisperConfig, raw),
    spec=spec,
    build=build,
    rename=rename,
    processor=_processor,
    architectures=frozenset({"WhisperForConditionalGeneration"}),
    rules=(Timestamps,),
)
