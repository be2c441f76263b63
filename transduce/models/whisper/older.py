"""Generation fields of older Whisper checkpoints and fine-tunes, brought to those of today's generation_config.json.

Knows no prompt's grammar but where forced_decoder_ids has the language and the task.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from transformers.models.whisper.tokenization_whisper import LANGUAGES

from transduce.errors import CheckpointError

FORCED = "forced_decoder_ids"

LANGUAGE, TASK = 1, 2
"""Their places in the decoder's prompt, which FORCED may have tokens for."""


def updated(tokenizer: Any, fields: Mapping[str, Any], tasks: Iterable[str]) -> Mapping[str, Any]:
    """The fields of a multilingual checkpoint, with `lang_to_id`, `language` and `task` where these are missing.

    Raises CheckpointError for forced tokens that are none.
    """
    languages = fields.get("lang_to_id") or _tokens(tokenizer, LANGUAGES)
    forced = _forced(fields)
    older = {
        "lang_to_id": languages,
        "language": _named(forced.get(LANGUAGE), languages),
        "task": _named(forced.get(TASK), _tokens(tokenizer, tasks)),
    }
    return {**fields, **{name: value for name, value in older.items() if fields.get(name) is None}}


def _tokens(tokenizer: Any, names: Iterable[str]) -> dict[str, int]:
    """Those of the names that are tokens, as in <|en|>."""
    named = [f"<|{name}|>" for name in names]
    ids = tokenizer.convert_tokens_to_ids(named)
    return {name: index for name, index in zip(named, ids, strict=True) if tokenizer.decode([index]) == name}


def _named(token: int | None, tokens: Mapping[str, int]) -> str | None:
    return next((name.strip("<|>") for name, index in tokens.items() if index == token), None)


def _forced(fields: Mapping[str, Any]) -> dict[int, int | None]:
    try:
        return dict(fields.get(FORCED) or ())
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{FORCED} is {fields[FORCED]!r}; give [place, token id] pairs, or leave it out"
        ) from error
