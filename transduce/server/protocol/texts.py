"""One text or several, each as characters or as token ids: what completions read, and what is scored."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from transduce.server.protocol.base import TokenIds, described

MOST_PROMPTS = 2_048
"""Of one request: they are let in together, and none is looked at again before the others have begun."""

_Some = Field(min_length=1, fail_fast=True)
_Several = Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)

Texts = Annotated[
    str | Annotated[list[str], _Several] | Annotated[list[int], _Some] | Annotated[list[TokenIds], _Several],
    described(f"a text, a list of token ids, or a list of either, with at least one and at most {MOST_PROMPTS:,}"),
]


def several(texts: str | list[Any]) -> Sequence[str | list[int]]:
    """Each of Texts, in order."""
    return [texts] if isinstance(texts, str) or isinstance(texts[0], int) else texts
