"""/v1/realtime before engines that say what they are told to, message by message."""

import asyncio
import base64
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.server.fakes import MODEL, FakeLLM, output, service
from tests.server.sockets import Socket, opened
from tests.speech.test_live import Loud, segment
from transduce.errors import ConfigError, EngineDeadError, RequestError
from transduce.server import service as realtime_service
from transduce.server.app import create_app
from transduce.server.items import HELD
from transduce.server.middleware import KEY
from transduce.server.service import Service
from transduce.speech.transcription import Transcription

PATH = "/v1/realtime"
RATE = 16_000
MANUAL = {"audio": {"input": {"format": {"rate": RATE}, "turn_detection": None}}}
SILENCES = {"audio": {"input": {"format": {"rate": RATE}}}}
SECOND = RATE


class LiveLLM(FakeLLM):
    """Says one text after the other, the last one for ever; waits until `go` is set. lengths: of what it heard."""

    def __init__(self, *texts: str) -> None:
        super().__init__("audio", "en")
        self.texts = [*texts]
        self.lengths: list[int] = []
        self.busy = self.busiest = self.aborted = 0
        self.frontend.processor.clock = SimpleNamespace(rate=RATE, window=30 * RATE, zero=5)
        self.frontend.processor.decoder_ids = self._asked_for
        self.frontend.lock, self.frontend.spec.target_vocab = nullcontext(), 9
        self.frontend.defaults = SimpleNamespace(languages={"en": 6})

    def _asked_for(self, prompt: object, options: dict[str, str | None]) -> None:
        if options["language"] not in (None, "en"):
            raise RequestError(f"language {options['language']!r} is unknown")
        if "<|" in (options["prompt"] or ""):
            raise RequestError(f"prompt {options['prompt']!r} holds a special token")

    async def transcribe(self, *given: Any, **options: Any) -> Transcription:
        self.lengths.append(len(given[0][0]))
        self.asked.append(options)
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        self.entered.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self.busy -= 1
        if self.error is not None:
            raise self.error
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        return Transcription(text, "en", output(text, 3, finished=True), (segment(text),), 1.0)


def talk(
    talking: Callable[[Socket, LiveLLM], Coroutine[None, None, None]], llm: LiveLLM, session: Any = MANUAL
) -> Service:
    """A session, updated, before the engine."""
    served = serving(llm)

    async def run() -> None:
        async with opened(create_app(served), PATH) as socket:
            assert (await socket.event())["type"] == "session.created"
            socket.send("session.update", session=session)
            assert (await socket.event())["type"] == "session.updated"
            await talking(socket, llm)

    asyncio.run(run())
    return served


def serving(llm: LiveLLM, **options: Any) -> Service:
    served = service(llm, **options)
    served.voice = Loud()  # type: ignore[assignment]
    return served


def sound(seconds: float, loud: float = 0.9) -> bytes:
    return np.full(int(seconds * RATE), loud * 32767, "<i2").tobytes()


def append(socket: Socket, seconds: float, loud: float = 0.9) -> None:
    socket.send("input_audio_buffer.append", audio=base64.b64encode(sound(seconds, loud)).decode())


def test_agreed_text_comes_while_it_is_spoken_and_the_rest_at_the_end() -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        append(socket, 0.6)
        assert (await socket.event())["partial"] == "the whale"
        append(socket, 0.6)
        agreed, partial = await socket.event(), await socket.event()
        assert (agreed["delta"], partial["partial"]) == ("The whale", "sinks")
        append(socket, 0.3)
        socket.send("input_audio_buffer.commit")
        committed = await socket.event("committed")
        events = [await socket.event() for _ in range(3)]
        assert [event["type"].rpartition(".")[2] for event in events] == ["partial", "delta", "completed"]
        assert "".join(event.get("delta", "") for event in [agreed, *events]) == "The whale sings."
        assert events[-1]["transcript"] == "The whale sings."
        assert events[-1]["usage"] == {"type": "duration", "seconds": 1.5}
        assert {event["item_id"] for event in (agreed, partial, *events)} == {committed["item_id"]}

    llm = LiveLLM("the whale", "The whale sinks", "The whale sings.")
    served = talk(talking, llm)
    assert llm.lengths == [0.6 * SECOND, 1.2 * SECOND, 1.5 * SECOND]
    assert [len(asked["fallback"].temperatures) for asked in llm.asked] == [1, 1, 6]
    assert served.metrics.registry.get_sample_value("transduce:audio_seconds_total", {"model_name": MODEL}) == 1.5


def test_hearings_are_one_at_a_time_and_of_the_newest_audio() -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        llm.go.clear()
        for _ in range(5):
            append(socket, 1)
        await llm.entered.wait()
        socket.send("input_audio_buffer.clear")  # is read when all before it was
        while not socket.said.empty():
            await asyncio.sleep(0)
        llm.go.set()
        await socket.event("cleared")
        socket.data(sound(2))
        await socket.event("partial")

    llm = LiveLLM("one two")
    talk(talking, llm)
    assert llm.lengths[-1] == 2 * SECOND
    assert (len(llm.lengths), llm.busiest) == (2, 1), "what was cleared is not heard again"


def test_a_silence_ends_an_item() -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        items: list[str] = []
        for before in (None, "the first"):
            append(socket, 1, loud=0)
            append(socket, 1)
            append(socket, 1, loud=0)
            began = await socket.event("speech_started")
            ended, committed = await socket.event("speech_stopped"), await socket.event("committed")
            completed = await socket.event("completed")
            assert {began["item_id"], ended["item_id"], completed["item_id"]} == {committed["item_id"]}
            assert committed["previous_item_id"] == (items[0] if before else None)
            assert completed["transcript"] == "The whale."
            items.append(committed["item_id"])
            assert 1000 * 3 * len(items) - 2000 - 332 <= began["audio_start_ms"] <= 1000 * 3 * len(items) - 2000 - 268
            assert ended["audio_end_ms"] == pytest.approx(3000 * len(items) - 1000 + 500, abs=70)
        socket.send("input_audio_buffer.commit")
        assert (await socket.event())["error"]["code"] == "input_audio_buffer_commit_empty"

    talk(talking, LiveLLM("The whale."), SILENCES)


def test_another_turn_detection_ends_what_goes_on() -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        append(socket, 0.3)
        socket.send("session.update", session=MANUAL)
        assert (await socket.event())["type"].endswith("updated"), "nothing changed"
        socket.send("session.update", session={"audio": {"input": {"format": {"rate": 8000}}}})
        kinds = [(await socket.event())["type"].rpartition(".")[2] for _ in range(2)]
        assert kinds == ["committed", "updated"]
        assert (await socket.event("completed"))["usage"]["seconds"] == pytest.approx(0.3)
        socket.data(sound(0.5))
        await socket.event("partial")

    llm = LiveLLM("one two")
    talk(talking, llm)
    assert llm.lengths[-1] == pytest.approx(SECOND, abs=100), "twice as long at half the rate"


def test_text_that_repeats_itself_is_no_hearing_until_it_is_the_last() -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        append(socket, 0.6)
        await llm.entered.wait()
        append(socket, 0.1)
        socket.send("input_audio_buffer.commit")
        assert (await socket.event())["type"] == "input_audio_buffer.committed"
        assert (await socket.event("completed"))["transcript"] == "no no"

    llm = LiveLLM("no no")
    made = llm.transcribe

    async def repeating(*given: Any, **options: Any) -> Transcription:
        heard = await made(*given, **options)
        again = segment("no no")
        return Transcription("", "en", heard.output, (type(again)(0, 0, 0, 1, "no no", (), 0, 0, 9.0, 0),))

    llm.transcribe = repeating  # type: ignore[method-assign]
    talk(talking, llm)


EARLIER = {
    "input_audio_format": "pcm16",
    "input_audio_rate": 8000,
    "input_audio_transcription": {"model": MODEL, "language": "en", "prompt": "Whales."},
    "turn_detection": {"type": "server_vad", "silence_duration_ms": 200},
    "input_audio_noise_reduction": None,
    "include": [],
}
TODAY = {
    "format": {"type": "audio/pcm", "rate": 8000},
    "transcription": {"model": MODEL, "language": "en", "prompt": "Whales."},
    "turn_detection": {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 200,
    },
    "noise_reduction": None,
}


def test_sessions_are_read_in_both_forms() -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        socket.send("transcription_session.update", session=EARLIER)
        updated = await socket.event()
        assert updated["type"] == "transcription_session.updated"
        assert updated["session"]["audio"]["input"] == TODAY
        socket.send("session.update", session={"type": "transcription", "audio": {"input": {"turn_detection": None}}})
        assert (await socket.event())["session"]["audio"]["input"] == {**TODAY, "turn_detection": None}
        socket.data(sound(0.3))
        await socket.event("partial")

    llm = LiveLLM("one two")
    talk(talking, llm)
    assert (llm.asked[0]["language"], llm.asked[0]["prompt"]) == ("en", "Whales.")


def test_without_what_finds_voices_only_the_client_ends_items(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ConfigError("voice activity: silero-vad is not installed")

    async def run() -> None:
        monkeypatch.setattr(realtime_service, "Voice", missing)
        async with opened(create_app(service(LiveLLM("one"))), PATH) as socket:
            assert (await socket.event())["session"]["audio"]["input"]["turn_detection"] is None
            socket.send("session.update", session=heard(turn_detection={"type": "server_vad"})["session"])
            assert "not installed" in (await socket.event())["error"]["message"]
            append(socket, 1)
            assert (await socket.event())["partial"] == "one"

    asyncio.run(run())


def heard(**given: Any) -> dict[str, Any]:
    return {"session": {"audio": {"input": given}}}


@pytest.mark.parametrize(
    ("kind", "fields", "param", "code"),
    [
        ("response.create", {}, "type", "unsupported"),
        ("session.update", {}, "session", "invalid_request"),
        ("session.update", {"session": {"type": "realtime"}}, "type", "invalid_request"),
        ("session.update", {"session": {"tools": []}}, "tools", "unsupported"),
        ("session.update", {"session": {"include": ["logprobs"]}}, "include", "invalid_request"),
        ("session.update", heard(format={"type": "audio/pcmu"}), "audio.input.format.type", "invalid_request"),
        ("session.update", heard(format={"rate": 3}), "audio.input.format.rate", "invalid_request"),
        ("session.update", heard(transcription={"model": "whisper-1"}), "model", "model_not_found"),
        ("session.update", heard(transcription={"language": "xx"}), None, "invalid_request"),
        ("session.update", heard(transcription={"prompt": "<|en|>"}), None, "invalid_request"),
        ("session.update", heard(turn_detection={"type": "semantic_vad"}), "audio.input.turn_detection.type", None),
        ("session.update", heard(noise_reduction={"type": "near_field"}), "audio.input.noise_reduction", None),
        ("session.update", {"session": {**EARLIER, "audio": {}}}, "audio", "invalid_request"),
        ("input_audio_buffer.append", {}, "audio", "invalid_request"),
        ("input_audio_buffer.append", {"audio": "?"}, "audio", "invalid_request"),
        ("input_audio_buffer.append", {"audio": "AAAA"}, None, "unreadable_media"),
        ("input_audio_buffer.commit", {}, None, "input_audio_buffer_commit_empty"),
    ],
)
def test_a_bad_event_is_an_error_and_the_socket_stays(kind: str, fields: Any, param: Any, code: Any) -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        socket.send(kind, **fields, event_id="mine")
        told = await socket.event()
        assert told["type"] == "error"
        assert told["error"]["event_id"] == "mine"
        assert (told["error"]["param"], told["error"]["code"]) == (param, code or "invalid_request")
        socket.send("input_audio_buffer.clear")
        assert (await socket.event())["type"] == "input_audio_buffer.cleared"

    talk(talking, LiveLLM("one"))


def test_more_than_is_held_is_refused_in_one_message_and_waits_in_several() -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        socket.data(sound(61))
        assert (await socket.event())["error"]["code"] == "too_large"
        llm.go.clear()
        for _ in range(4):
            socket.data(sound(30))
        await llm.entered.wait()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not socket.said.empty(), "a message was read for which there was no room"
        llm.go.set()
        socket.send("input_audio_buffer.commit")
        assert (await socket.event("completed"))["usage"]["seconds"] == 120

    llm = LiveLLM("one two")
    talk(talking, llm)
    assert max(llm.lengths) == 30 * SECOND < HELD


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000], ids=range(3))
def test_what_is_no_event_at_all_closes_the_socket(text: str) -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        socket.text(text)
        closed = await socket.message()
        assert (closed["type"], closed["code"]) == ("websocket.close", 1007)
        assert closed["reason"].startswith("a message is no JSON")

    talk(talking, LiveLLM("one"))


def test_an_item_fails_and_the_socket_stays() -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        llm.error = EngineDeadError("the engine process ended")
        append(socket, 1)
        failed = await socket.event()
        assert failed["type"] == "conversation.item.input_audio_transcription.failed"
        assert failed["error"]["code"] == "engine_unavailable"
        append(socket, 1)
        socket.send("input_audio_buffer.commit")
        await socket.event("committed")
        llm.error = None
        append(socket, 1)
        assert (await socket.event())["item_id"] != failed["item_id"]

    llm = LiveLLM("one two")
    talk(talking, llm)
    assert len(llm.lengths) == 2, "an item that failed is not heard again"


def test_who_breaks_is_told_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        llm.error = ZeroDivisionError()
        append(socket, 1)
        assert (await socket.event())["error"]["code"] == "internal_error"
        assert (await socket.message())["code"] == 1011

    talk(talking, LiveLLM("one"))
    assert "ZeroDivisionError" in caplog.text


def test_a_client_that_leaves_aborts_its_hearing() -> None:
    async def talking(socket: Socket, llm: LiveLLM) -> None:
        llm.go.clear()
        append(socket, 1)
        await llm.entered.wait()

    llm = LiveLLM("one")
    served = talk(talking, llm)
    assert (llm.aborted, served.requests) == (1, 0)


def test_a_server_that_ends_completes_what_was_said() -> None:
    async def run() -> None:
        llm = LiveLLM("one two")
        served = serving(llm)
        async with opened(create_app(served), PATH) as socket:
            socket.send("session.update", session=MANUAL)
            append(socket, 0.6)
            await socket.event("partial")
            drained = asyncio.create_task(served.drain())
            assert (await socket.event("completed"))["transcript"] == "one two"
            assert (await socket.message())["code"] == 1001
        assert await drained

    asyncio.run(run())


def test_what_stands_before_requests_stands_before_sockets() -> None:
    async def refused(served: Service, status: int, said: str, **given: Any) -> None:
        async with opened(create_app(served), PATH, **given) as socket:
            assert (socket.opening["type"], socket.status) == ("websocket.http.response.start", status)
            assert "x-request-id" in socket.headers
            assert said in (await socket.message())["body"].decode()

    async def run() -> None:
        await refused(serving(LiveLLM("one"), api_key=("sesame",)), 401, "API key")
        await refused(serving(LiveLLM("one"), api_key=("sesame",)), 401, "API key", subprotocols=[f"{KEY}x"])
        await refused(serving(LiveLLM("one")), 403, "allowed-origins", headers={"origin": "http://elsewhere"})
        await refused(serving(LiveLLM("one")), 404, "no model 'gpt-realtime'", query="model=gpt-realtime")
        await refused(service(FakeLLM()), 404, "takes text")
        loading = LiveLLM("one")
        loading.state = "loading"
        await refused(serving(loading), 503, "loading")
        full = LiveLLM("one")
        full.waiting, full.live = 300, 300 + full.config.max_num_seqs
        await refused(serving(full), 429, "before this one")

    asyncio.run(run())


@pytest.mark.parametrize(
    "given",
    [
        {"headers": {"authorization": "Bearer sesame"}},
        {"subprotocols": ["realtime", f"{KEY}sesame"], "headers": {"origin": "http://test"}},
        {"subprotocols": [f"{KEY}sesame"], "headers": {"origin": "http://else", "x-request-id": "mine"}},
    ],
    ids=range(3),
)
def test_who_has_a_key_is_let_in(given: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        served = serving(LiveLLM("one"), api_key=("sesame",), allowed_origins=("http://else",))
        with caplog.at_level("INFO", "transduce.access"):
            async with opened(create_app(served), PATH, query=f"model={MODEL}", **given) as socket:
                assert socket.opening["type"] == "websocket.accept"
                wanted = "realtime" if "realtime" in given.get("subprotocols", ()) else None
                assert socket.opening["subprotocol"] == wanted
                assert served.metrics.registry.get_sample_value(
                    "transduce:num_realtime_sessions", {"model_name": MODEL}
                )
                name = socket.headers["x-request-id"]
        fields = caplog.records[-1].__dict__["fields"]
        assert (fields["path"], fields["status"], fields["request_id"]) == (PATH, 101, name)
        assert served.requests == 0

    asyncio.run(run())
