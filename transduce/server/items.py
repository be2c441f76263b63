"""The items of a live session: turns that are heard one after the other, and what a client is told of each.

Owns the queue of turns and the one hearing that is under way: an ordinary transcription of one window, of the newest
audio. Knows no socket, no agreement and no thresholds.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from starlette.requests import HTTPConnection

from transduce.errors import TransduceError
from transduce.media.voice import RATE
from transduce.server.errors import problem
from transduce.server.protocol.audio import AudioLength
from transduce.server.protocol.realtime import INPUT, TRANSCRIPTION, Transcribing
from transduce.server.service import Service
from transduce.speech.fallback import Fallback
from transduce.speech.live import Turn
from transduce.speech.segments import Segment

STEP = RATE // 2
"""Samples that are new in a hearing of a turn that goes on: half a second."""
HELD = 60 * RATE
"""Samples of a session that are in memory; while there are more, no more are taken."""

ONCE = Fallback(temperatures=(0.0,))
"""A turn that goes on is heard again anyway."""

Tell = Callable[..., Awaitable[None]]
"""tell(kind, **fields): sends an event."""


@dataclass(eq=False, slots=True)
class Item:
    """A turn under the name that clients know it by. committed: they were told that it has ended. guess: as told."""

    turn: Turn
    id: str = field(default_factory=lambda: name("item"))
    committed: bool = False
    guess: str = ""


class Items:
    """Those of one session that are not complete. asked: what is asked about speech. tell: sends an event."""

    def __init__(self, http: HTTPConnection, service: Service, tell: Tell, *, stamps: bool) -> None:
        self.asked = Transcribing()
        self._http = http
        self._service = service
        self._tell = tell
        self._stamps = stamps
        self._items: deque[Item] = deque()
        self._last: str | None = None
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._over = False

    def begin(self, turn: Turn) -> str:
        """A turn begins; returns its item's name."""
        self._items.append(Item(turn))
        return self.newest

    @property
    def newest(self) -> str:
        """The name of the last item."""
        return self._items[-1].id

    async def commit(self) -> None:
        """The last turn has ended."""
        item, before = self._items[-1], self._last
        self._last = item.id
        await self._tell(f"{INPUT}.committed", item_id=item.id, previous_item_id=before)
        item.committed = True
        self._news.set()

    def forget(self) -> None:
        """The last turn is no item."""
        self._items.pop()

    def more(self) -> None:
        """There is more audio, or a turn less."""
        self._news.set()

    def end(self) -> None:
        """No item follows."""
        self._over = True
        self._news.set()

    async def has_room(self) -> None:
        """Wait while too much is held: a client that is faster than the engine has to."""
        await asyncio.sleep(0)
        while sum(item.turn.held for item in self._items) > HELD:
            self._news.set()
            self._room.clear()
            await self._room.wait()

    async def run(self) -> None:
        """Hear turns, for ever, or until all are complete and it is over."""
        while self._items or not self._over:
            item = self._items[0] if self._items else None
            if item is not None and item.committed and (item.turn.done or item.turn.failed):
                await self._complete(item)
            elif item is not None and self._due(item):
                await self._hear(item)
            else:
                self._news.clear()
                await self._news.wait()

    def _due(self, item: Item) -> bool:
        turn = item.turn
        return not turn.failed and (item.committed if turn.ended else turn.unheard >= STEP)

    async def _hear(self, item: Item) -> None:
        turn, last, samples = item.turn, item.turn.last, item.turn.audio()
        try:
            made = await self._service.hear(self._http, samples, RATE, **self._asked(turn))
        except TransduceError as error:
            turn.fail()
            await self._told(item, "failed", error=problem(error).body["error"])
            return
        if item not in self._items:
            return  # it was cleared meanwhile
        if not last and any(map(_repeats, made.segments)):
            turn.skip(len(samples))
        else:
            delta = turn.hear(made.segments, len(samples), made.language)
            self._room.set()
            await self._say(item, delta)

    def _asked(self, turn: Turn) -> Mapping[str, Any]:
        """Arguments of AsyncLLM.transcribe. A model without timestamps is told no context."""
        asked = self.asked
        context = [asked.prompt, turn.context if self._stamps else None]
        return {
            "language": asked.language,
            "prompt": " ".join(filter(None, context)) or None,
            "timestamps": self._stamps,
            "fallback": Fallback() if turn.last else ONCE,
        }

    async def _say(self, item: Item, delta: str) -> None:
        """What is new of an item, and what may follow."""
        if delta:
            await self._told(item, "delta", delta=delta)
        if item.turn.guess != item.guess:
            item.guess = item.turn.guess
            await self._told(item, "partial", partial=item.guess)

    async def _complete(self, item: Item) -> None:
        turn = item.turn
        if not turn.failed:
            if delta := turn.settle():
                await self._told(item, "delta", delta=delta)
            usage = AudioLength(type="duration", seconds=turn.seconds)
            await self._told(item, "completed", transcript=turn.text, usage=usage)
            self._service.heard(self._http, turn.seconds)
        self._items.popleft()
        self._room.set()

    async def _told(self, item: Item, what: str, **fields: Any) -> None:
        await self._tell(f"{TRANSCRIPTION}.{what}", item_id=item.id, content_index=0, **fields)


def name(kind: str) -> str:
    """A name for something of a kind, which nothing else has."""
    return f"{kind}_{uuid4().hex}"


def _repeats(segment: Segment) -> bool:
    """Whether its window's text repeats itself, and is not to be believed."""
    threshold = ONCE.compression_ratio_threshold
    return threshold is not None and segment.compression_ratio > threshold
