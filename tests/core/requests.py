"""Small requests for the tests of core."""

from zlib import crc32

import numpy as np

from transduce.core.request import EncoderInput, EncoderItem, Request, Sampling, Span, Stopping

SAMPLING = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)


def item(content: int, rows: int = 1, cost: int | None = None) -> EncoderItem:
    """An item told apart by `content`; without padding unless `cost` says so."""
    return EncoderItem(np.array([content, rows], np.int64), rows, rows if cost is None else cost)


def source(*items: EncoderItem) -> EncoderInput:
    """An input whose key is its content."""
    return EncoderInput(b"|".join(i.data.tobytes() for i in items), items)


def request(
    name: str,
    prompt: int = 1,
    max_tokens: int = 1,
    width: int = 1,
    rows: int = 0,
    content: int | None = None,
    owner: str = "",
    priority: int = 0,
) -> Request:
    """`prompt` tokens, one input of `rows` rows (if any) seen from the start; never ends before `max_tokens`."""
    inputs = (source(item(crc32(name.encode()) if content is None else content, rows)),) if rows else ()
    spans = (Span(0, 0, rows),) if rows else ()
    sampling = SAMPLING if width > 1 else None
    prefix, stopping = tuple(range(1, prompt + 1)), Stopping(max_tokens)
    return Request(name, prefix, inputs, spans, stopping, sampling, width, owner=owner, priority=priority)
