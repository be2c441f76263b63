"""LLM on tiny folders: loading one in little memory, and the tokens it answered."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transduce import LLM, RequestOutput


def load(folder: Path, **options: Any) -> LLM:
    return LLM(folder, **{"dtype": "float32", "kv_cache_bytes": 1 << 20} | options)


def tokens(outputs: Sequence[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]
