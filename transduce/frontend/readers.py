"""Readers: the checkpoint's processor for one thread at a time, and a copy of it for long texts.

Owns who waits for whom. A tokenizer reads about a million characters a second, and whoever needs it meanwhile waits: a
request for its short prompt, all streams for their text. So long texts wait for each other alone. Knows no request.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from threading import Lock

from transduce.models.base import Processor

LONG = 20_000
"""Characters, or token ids, beyond which a text is long."""


class Readers:
    """lock: held while the processor that reads short texts, and decodes, works."""

    def __init__(self, processor: Processor) -> None:
        self.lock = Lock()
        self._processor = processor
        self._long = Lock()
        self._copy: Processor | None = None
        self._thread = ThreadPoolExecutor(1, "long-texts")

    @contextmanager
    def alone(self, *texts: object) -> Iterator[Processor]:
        """A processor for texts, or what stands in their place, that no other thread has within the block."""
        if not _long(texts):
            with self.lock:
                yield self._processor
        else:
            with self._long:
                yield self._second()

    def executor(self, *texts: object) -> Executor | None:
        """What is to read texts off an event loop: of long ones one thread, which leaves the others free; None: any."""
        return self._thread if _long(texts) else None

    def _second(self) -> Processor:
        if self._copy is None:
            with self.lock:
                self._copy = deepcopy(self._processor)
        return self._copy


def _long(texts: tuple[object, ...]) -> bool:
    return sum(map(_size, texts)) > LONG


def _size(value: object) -> int:
    """Of a text, of token ids, or of those in a dict, such as a prompt."""
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    return len(value) if isinstance(value, str | list | tuple) else 0
