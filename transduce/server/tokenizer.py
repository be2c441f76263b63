"""The checkpoint's tokenizer for routes: off the event loop, and one at a time with the requests' own use of it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from transduce.core.checks import shown
from transduce.errors import RequestError
from transduce.server.errors import NotServed
from transduce.server.service import Service

T = TypeVar("T")


def text_of(ids: Sequence[int], tokenizer: Any, *, skip_special_tokens: bool = False) -> str:
    """The text of token ids. Raises RequestError for one that the tokenizer lacks."""
    unknown = next((token for token in ids if not 0 <= token < len(tokenizer)), None)
    if unknown is not None:
        raise RequestError(f"there is no token id {shown(unknown)}; the tokenizer's go from 0 to {len(tokenizer) - 1}")
    text: str = tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
    return text


async def with_tokenizer(service: Service, use: Callable[[Any], T], *texts: object) -> T:
    """What `use` makes of the tokenizer and these texts, or ids. Raises NotServed where none was loaded."""
    if service.llm.get_tokenizer() is None:
        raise NotServed("no tokenizer was loaded (--skip-tokenizer-init); this server takes and gives token ids alone")

    readers = service.llm.frontend.readers

    def alone() -> T:
        with readers.alone(*texts) as processor:
            return use(processor.tokenizer)

    return await asyncio.get_running_loop().run_in_executor(readers.executor(*texts), alone)
