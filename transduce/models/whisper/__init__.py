"""Whisper, of every size, English-only and multilingual."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import WhisperFeatureExtractor

from transduce.errors import CheckpointError
from transduce.models.base import Family
from transduce.models.config import GENERATION, generation_fields, start_token, view
from transduce.models.whisper.model import WhisperConfig, build, spec
from transduce.models.whisper.processor import Prompt, WhisperProcessor, feature_extractor
from transduce.models.whisper.rules import Timestamps


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


def _processor(folder: Path, config: WhisperConfig, tokenizer: Any) -> WhisperProcessor:
    fields = generation_fields(folder)
    said = view(Directions, fields, GENERATION)
    prompt = Prompt(
        start=start_token(fields),
        multilingual=config.multilingual if said.is_multilingual is None else said.is_multilingual,
        language=said.language,
        task=said.task or "transcribe",
        previous=config.max_target_positions // 2 - 1,
        first_timestamp=said.max_initial_timestamp_index,
    )
    return WhisperProcessor(tokenizer, _extractor(folder, config), prompt)


def _extractor(folder: Path, config: WhisperConfig) -> WhisperFeatureExtractor:
    """CheckpointError where preprocessor_config.json is nothing transformers can make an extractor of."""
    try:
        return feature_extractor(folder, mels=config.num_mel_bins, rows=config.max_source_positions)
    except CheckpointError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise CheckpointError(
            f"{folder / 'preprocessor_config.json'} makes no feature extractor ({error}): save or download it again"
        ) from error


FAMILY = Family(
    config=lambda raw: view(WhisperConfig, raw),
    spec=spec,
    build=build,
    rename=rename,
    processor=_processor,
    architectures=frozenset({"WhisperForConditionalGeneration"}),
    rules=(Timestamps,),
)
