"""A checkpoint's tokenizer, by transformers. Owns what must be there for one; knows no family."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transduce.config import EngineConfig
from transduce.errors import CheckpointError
from transduce.models.config import read_json
from transduce.runtime.checkpoint import Checkpoint
from transduce.runtime.hub import locate

VOCABULARIES = (
    ("tokenizer.json",),
    ("vocab.json", "merges.txt"),
    ("vocab.json", "source.spm", "target.spm"),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
    ("tokenizer.model",),
    ("vocab.txt",),
)
"""Sets of files, each enough for a tokenizer: without any, transformers makes an empty one and says nothing."""

SETTINGS = "tokenizer_config.json"

CHAT_TEMPLATE = "chat_template.json"
"""Where processors have their template. transformers' tokenizers do not read it, and its processors prefer it."""

WAY_OUT = "give a folder with one as tokenizer=... or --tokenizer, or serve token ids with skip_tokenizer_init=True"


def load_tokenizer(checkpoint: Checkpoint, config: EngineConfig) -> Any:
    """The transformers tokenizer of `config.tokenizer`, else of the checkpoint; None with `skip_tokenizer_init`.

    A local folder never asks the network. Raises CheckpointError where files are missing or cannot be used.
    """
    if config.skip_tokenizer_init:
        return None
    folder = checkpoint.folder
    if config.tokenizer is not None:
        folder = locate(config.tokenizer, code=config.trust_remote_code)
    _check(folder)
    from transformers import AutoTokenizer

    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=config.trust_remote_code, **_untold(folder, checkpoint)
            )
    except Exception as error:
        # The tokenizers library raises bare Exceptions, and a broken file almost anything.
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise CheckpointError(f"the tokenizer in {str(folder)!r} cannot be loaded ({reason}): {WAY_OUT}") from error
    if (template := folder / CHAT_TEMPLATE).is_file():
        tokenizer.chat_template = read_json(template).get("chat_template", tokenizer.chat_template)
    return tokenizer


def _check(folder: Path) -> None:
    """Raise unless the folder has a whole vocabulary, or a tokenizer of bytes, which needs none."""
    nearest = min(VOCABULARIES, key=lambda names: len(_missing(folder, names)) / len(names))
    missing = _missing(folder, nearest)
    if missing and not _bytewise(folder / SETTINGS):
        raise CheckpointError(f"{str(folder)!r} has no {' and '.join(missing)}: {WAY_OUT}")


def _untold(folder: Path, checkpoint: Checkpoint) -> Mapping[str, Any]:
    """What a tokenizer.json that came alone does not say as transformers wants it: its class and its special tokens."""
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    file = folder / "tokenizer.json"
    if not file.is_file() or (folder / SETTINGS).is_file() or checkpoint.model_type not in TOKENIZER_MAPPING_NAMES:
        return {}
    special = [token["content"] for token in read_json(file).get("added_tokens", []) if token["special"]]
    return {"tokenizer_type": checkpoint.model_type, "extra_special_tokens": special}


def _missing(folder: Path, names: Sequence[str]) -> list[str]:
    return [name for name in names if not (folder / name).is_file()]


def _bytewise(settings: Path) -> bool:
    return settings.is_file() and read_json(settings).get("tokenizer_class") == "ByT5Tokenizer"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' advice, which is meant for its own callers, from the user."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
