"""Streams: each request's outputs on their way from the thread that receives them to the task that awaits them.

Owns what happens where: results are made in the receiving thread, and handed over in the event loop. A result holds
all of the answer so far, so for a slow reader the newest takes the place of those it has not seen.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from math import inf
from uuid import uuid4

from transduce.async_engine.messages import Turn
from transduce.core.output import Output
from transduce.errors import EngineDeadError, EngineError, RequestError, TransduceError
from transduce.frontend.collector import Collector, Ends
from transduce.frontend.outputs import RequestOutput

logger = logging.getLogger(__name__)

News = RequestOutput | TransduceError


class Stream:
    """The outputs of one request. key: what the engine calls it. every: whether to hand over more than the last."""

    def __init__(self, key: str, turn: Turn, every: bool) -> None:
        self.key = key
        self.turn = turn
        self.aborted = False
        self.over = False
        """Whether the last output, or an error, has been handed over."""
        self._every = every
        self._collector: Collector | None = None
        self._news: News | None = None
        self._arrived = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether there is more to get."""
        return not self.over or self._arrived.is_set()

    @property
    def begun(self) -> bool:
        """Whether the engine knows the request."""
        return self._collector is not None

    @property
    def finished(self) -> bool:
        """Whether the engine has said all: it goes on with others of the request's answers when one is an error."""
        return self._collector is not None and self._collector.finished

    @property
    def scheduled(self) -> bool:
        """Whether the request has been part of a step."""
        return self._collector is not None and self._collector.scheduled

    def begin(self, collector: Collector) -> None:
        """From now on the engine may answer."""
        self._collector = collector

    def take(self, output: Output, ended: Callable[[Ends], None]) -> News | None:
        """In the receiving thread: what an output says that is to be handed over. `ended` is told of stop strings."""
        collector = self._collector
        if collector is None or collector.finished:
            return None
        try:
            for end in collector.add(output):
                ended(end)
            if collector.error is not None:
                return collector.error
            seen = collector.finished or (self._every and output.deltas)
            return collector.result() if seen else None
        except Exception as error:
            logger.exception("request %s: its answer could not be read", collector.job.request.request_id)
            return EngineError(f"the answer could not be read: {type(error).__name__}: {error}")

    def put(self, news: News) -> None:
        """In the event loop: hand something over."""
        if not self.over:
            self._news = news
            self.over = isinstance(news, TransduceError) or news.finished
            self._arrived.set()

    async def get(self) -> RequestOutput:
        """The newest output that has not been seen, once there is one. Raises the error that ended the request."""
        await self._arrived.wait()
        self._arrived.clear()
        if isinstance(self._news, TransduceError):
            raise self._news
        assert self._news is not None, "woken without news"
        return self._news


class Streams:
    """The streams of the requests inside, by the user's names and by the engine's. Its length: how many users ask, for
    all requests about a recording are one of theirs.

    The engine's are its own: a name is free for the next request before the engine has heard of the end of the last.
    """

    def __init__(self) -> None:
        self._named: dict[str, Stream] = {}
        self._keyed: dict[str, Stream] = {}
        self._keys = map(str, count())

    def __len__(self) -> int:
        return len({_asked(stream) for stream in self})

    def __iter__(self) -> Iterator[Stream]:
        return iter([*self._named.values()])

    def waiting(self, urgency: float = inf) -> int:
        """How many of them have not been part of a step yet, of priorities up to that."""
        begun = {_asked(stream) for stream in self if stream.scheduled}
        return len({_asked(stream) for stream in self if stream.turn.priority <= urgency} - begun)

    def named(self, name: str) -> Stream | None:
        """The stream of a request, by the user's name."""
        return self._named.get(name)

    def fail(self, reason: str) -> None:
        """EngineDeadError, which says so, to all that the engine knows."""
        for stream in self:
            if stream.begun:
                stream.put(EngineDeadError(reason))

    def refuse(self, key: str, error: TransduceError) -> None:
        """The engine has not taken a request, by its name for it."""
        if (stream := self._keyed.get(key)) is not None:
            stream.put(error)

    @contextmanager
    def entered(self, name: str | None, turn: Turn, every: bool) -> Iterator[tuple[str, Stream]]:
        """A new request's name and stream, for as long as it is inside. Raises RequestError for a name in use."""
        name, key = uuid4().hex if name is None else name, next(self._keys)
        if name in self._named:
            raise RequestError(f"request id {name!r} is in use; give another, or none")
        stream = self._named[name] = self._keyed[key] = Stream(key, turn, every)
        try:
            yield name, stream
        finally:
            del self._named[name], self._keyed[key]

    def take(self, outputs: Iterable[Output], ended: Callable[[str, Ends], None]) -> list[tuple[Stream, News]]:
        """In the receiving thread: what outputs say that is to be handed over, and to whom; see Stream.take."""
        news: list[tuple[Stream, News]] = []
        for output in outputs:
            stream = self._keyed.get(output.request_id)
            taken = None if stream is None else stream.take(output, partial(ended, stream.key))
            if stream is not None and taken is not None:
                news.append((stream, taken))
        return news


def _asked(stream: Stream) -> str:
    """What a user asked for."""
    return stream.turn.recording or stream.key
