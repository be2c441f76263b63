"""/v1/realtime: speech over a WebSocket as it is spoken, its text back while it is.

Owns a socket from its opening to its close, its session, and what its events do. Knows not how items are heard.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, HTTPException, WebSocket, WebSocketDisconnect
from fastapi.exceptions import RequestValidationError

from transduce.errors import ConfigError, RequestError, TransduceError
from transduce.media.pcm import Pcm16
from transduce.media.voice import RATE
from transduce.server.audio import transcribes
from transduce.server.errors import EmptyBuffer, FieldError, TooLarge, problem
from transduce.server.items import HELD, Items, name
from transduce.server.protocol.realtime import INPUT, Append, Commit, Event, Session, Update, event
from transduce.server.service import Service
from transduce.speech.turns import Change, Listener

SUBPROTOCOL = "realtime"

GOING_AWAY, UNREADABLE, BROKEN = 1001, 1007, 1011
"""Why a server closes a socket, as RFC 6455 numbers it: it ends, a message is no JSON object, it failed."""

PIECE = RATE
"""Samples that are taken at a time, so that nobody waits long."""

router = APIRouter()


@router.websocket("/v1/realtime")
async def realtime(socket: WebSocket, model: str | None = None) -> None:
    """A session of live transcription."""
    service: Service = socket.app.state.service
    await transcribes(service)
    service.check_model(model)
    service.check_room(0)
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope["subprotocols"] else None)
    with service.metrics.listening():
        await _Conversation(socket, service).run()


@router.get("/v1/realtime", include_in_schema=False)
async def upgrade() -> None:
    """Says to who opens no socket that it is one."""
    raise HTTPException(426, headers={"Upgrade": "websocket"})


class _UnreadableError(Exception):
    """A message that cannot be read as an event at all."""


class _Conversation:
    """One socket, open."""

    def __init__(self, socket: WebSocket, service: Service) -> None:
        self._socket = socket
        self._service = service
        self._id = name("sess")
        self._session = Session()

    async def run(self) -> None:
        """Until the client leaves or the server ends."""
        with suppress(WebSocketDisconnect):
            try:
                await self._begin()
                await self._converse()
            except _UnreadableError as error:
                await self._socket.close(UNREADABLE, str(error))
            except WebSocketDisconnect:
                raise
            except Exception as error:  # noqa: BLE001  # `problem` logs what nobody raised on purpose
                await self._refuse(error, None)
                await self._socket.close(BROKEN)

    async def _begin(self) -> None:
        clock = self._service.llm.frontend.processor.clock
        assert clock.rate == RATE, "models hear what voices are found in"
        self._window = min(clock.window, HELD // 2)
        stamps = await asyncio.to_thread(self._service.stamps)
        self._items = Items(self._socket, self._service, self._tell, stamps=stamps)
        try:
            await self._listen(self._session, 0)
        except ConfigError:  # what finds voices is not installed: asking for it says so
            self._session = self._session.updated({"turn_detection": None})
            await self._listen(self._session, 0)
        await self._tell("session.created", session=self._about())

    async def _converse(self) -> None:
        reading, hearing = asyncio.create_task(self._read()), asyncio.create_task(self._items.run())
        ending = asyncio.create_task(self._service.draining.wait())
        tasks = (reading, hearing, ending)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if done == {ending}:
                reading.cancel()
                await asyncio.wait([reading])
                await self._finish(hearing)
            else:
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _finish(self, hearing: asyncio.Task[None]) -> None:
        """The server ends: what was said so far is the last item."""
        await self._commit()
        self._items.end()
        await hearing
        await self._socket.close(GOING_AWAY)

    # What the client says

    async def _read(self) -> None:
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            given = message.get("bytes")
            about = None
            try:
                if given is not None:
                    await self._append(given)
                else:
                    given = _object(message["text"])
                    about = given.get("event_id")
                    await self._obey(event(given))
            except (TransduceError, RequestValidationError) as error:
                await self._refuse(error, about)

    async def _obey(self, given: Event) -> None:
        match given:
            case Update():
                await self._update(given)
            case Append():
                await self._append(_decoded(given.audio))
            case Commit():
                if not await self._commit():
                    raise EmptyBuffer("the input audio buffer holds no speech to commit; append audio first")
            case _:
                await self._clear()

    async def _update(self, given: Update) -> None:
        session = self._session.updated(given.session)
        asked, before = session.audio.input, self._session.audio.input
        self._service.check_model(asked.transcription.model)
        await asyncio.to_thread(self._service.check_speech, asked.transcription.language, asked.transcription.prompt)
        if (asked.format, asked.turn_detection) != (before.format, before.turn_detection):
            await self._commit()
            await self._listen(session, self._listener.at)
        self._session, self._items.asked = session, asked.transcription
        await self._tell(f"{given.type}d", session=self._about())

    async def _listen(self, session: Session, at: int) -> None:
        """To audio as a session has it. Raises ConfigError where voices cannot be found."""
        asked = session.audio.input
        turns = asked.turn_detection
        voice = None if turns is None else await asyncio.to_thread(lambda: self._service.voice)
        self._pcm = Pcm16(asked.format.rate, RATE)
        self._listener = Listener(self._window, voice, None if turns is None else turns.options(), at)

    async def _append(self, data: bytes) -> None:
        samples = self._pcm.samples(data)
        if len(samples) > HELD:
            raise TooLarge(f"{len(samples) / RATE:.1f} s of audio in one message; send at most {HELD // RATE} s")
        for start in range(0, len(samples), PIECE):
            await self._items.has_room()
            for change in self._listener.hear(samples[start : start + PIECE]):
                await self._changed(change)
        self._items.more()

    async def _changed(self, change: Change) -> None:
        milliseconds = change.at * 1000 // RATE
        if not change.begins:
            await self._tell(f"{INPUT}.speech_stopped", item_id=self._items.newest, audio_end_ms=milliseconds)
            await self._items.commit()
            return
        item = self._items.begin(change.turn)
        if self._session.audio.input.turn_detection is not None:
            await self._tell(f"{INPUT}.speech_started", item_id=item, audio_start_ms=milliseconds)

    async def _commit(self) -> bool:
        """End the turn that goes on; whether there is one."""
        if self._listener.end() is None:
            return False
        await self._items.commit()
        return True

    async def _clear(self) -> None:
        if self._listener.clear() is not None:
            self._items.forget()
        await self._tell(f"{INPUT}.cleared")

    # What the client is told

    def _about(self) -> Mapping[str, Any]:
        return {"id": self._id, "object": "realtime.transcription_session", **self._session.model_dump()}

    async def _tell(self, kind: str, **fields: Any) -> None:
        await self._socket.send_text(json.dumps({"type": kind, "event_id": name("event"), **fields}))

    async def _refuse(self, error: Exception, about: object) -> None:
        """about: the client's own name of the event that is at fault."""
        await self._tell("error", error={**problem(error).body["error"], "event_id": about})


def _object(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UnreadableError("a message is no JSON") from error
    if not isinstance(given, dict):
        raise _UnreadableError("a message is no JSON object")
    return given


def _decoded(audio: str) -> bytes:
    try:
        return b64decode(audio, validate=True)
    except ValueError as error:
        raise FieldError(f"audio is no base64: {error}", "audio", RequestError) from error
