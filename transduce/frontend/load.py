"""The frontend of a checkpoint: its processor and defaults, over a model that this process or another has loaded."""

import logging
from collections.abc import Mapping
from typing import Any

from transduce.config import EngineConfig
from transduce.core.capacity import Room
from transduce.frontend import generation_config
from transduce.frontend.frontend import Frontend
from transduce.models.base import Processor, find
from transduce.runtime.checkpoint import Checkpoint
from transduce.runtime.tokenizer import load_tokenizer

logger = logging.getLogger(__name__)


def load_processor(checkpoint: Checkpoint, config: EngineConfig) -> Processor:
    """The checkpoint's processor over its tokenizer, or over the one that `config` names. Raises CheckpointError."""
    family = find(checkpoint.model_type)
    tokenizer = load_tokenizer(checkpoint, config)
    return family.processor(checkpoint.folder, family.config(checkpoint.config), checkpoint.asked, tokenizer)


def load_frontend(
    checkpoint: Checkpoint, processor: Processor, given: EngineConfig, resolved: EngineConfig, dtype: str, room: Room
) -> Frontend:
    """The frontend of a loaded model. given, resolved: its config before loading and after. dtype: the model's.

    Raises ConfigError for what the checkpoint asks of generation and cannot be followed.
    """
    family = find(checkpoint.model_type)
    spec = family.spec(family.config(checkpoint.config))
    limits = [limit for limit in (given.max_model_len, spec.max_source) if limit is not None]
    defaults = generation_config.load(*_updated(checkpoint, processor), given.generation_config)
    if defaults.encoder_no_repeat_ngram_size and processor.media and not processor.prompted:
        name = f"encoder_no_repeat_ngram_size={defaults.encoder_no_repeat_ngram_size}"
        logger.warning("%s is ignored: the encoder reads no tokens", name)
    return Frontend(
        processor=processor,
        spec=spec,
        defaults=defaults,
        config=resolved,
        max_source=min(limits, default=None),
        identity=f"{checkpoint.revision} {dtype}",
        room=room,
    )


def _updated(checkpoint: Checkpoint, processor: Processor) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    """generation_config.json and config.json, the one that counts with the fields of today."""
    if checkpoint.generation is None:
        return None, processor.updated(checkpoint.config)
    return processor.updated(checkpoint.generation), checkpoint.config
