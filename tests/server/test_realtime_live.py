"""/v1/realtime by clients that people use, before a real server and engine, of a tiny random model."""

import asyncio
import base64
import logging
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import connect

from tests.server.live import MODEL, Live, tone

ROOT = Path(__file__).parents[2]
ADDRESS = "ws://127.0.0.1:8000"
HEADER = 44
"""Bytes of a WAV file before its samples."""
SESSION: Any = {
    "type": "transcription",
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24_000},
            "transcription": {"model": MODEL, "language": "fr"},
            "turn_detection": None,
        }
    },
}


def address(served: Live) -> str:
    return str(served.http.base_url).rstrip("/")


def socket_url(served: Live) -> str:
    return address(served).replace("http", "ws")


def test_openai_s_client(speech: Live) -> None:
    async def run() -> list[Any]:
        async with (
            AsyncOpenAI(base_url=f"{address(speech)}/v1", api_key="none") as client,
            client.realtime.connect(model=MODEL) as connection,
        ):
            await connection.session.update(session=SESSION)
            await connection.input_audio_buffer.append(audio=base64.b64encode(tone(900)[HEADER:]).decode())
            await connection.input_audio_buffer.commit()
            events = []
            async for event in connection:
                events.append(event)
                if event.type == "conversation.item.input_audio_transcription.completed":
                    return events
        raise AssertionError("the connection ended")

    events = asyncio.run(run())
    assert [event.type for event in events[:3]] == [
        "session.created",
        "session.updated",
        "input_audio_buffer.committed",
    ]
    assert events[1].session.audio.input.transcription.language == "fr"
    *deltas, completed = (event for event in events if "input_audio_transcription" in event.type)
    said = "".join(event.delta for event in deltas if event.type.endswith(".delta"))
    assert said == completed.transcript != ""
    assert completed.usage.seconds == pytest.approx(0.5 * 16 / 24, abs=0.01)


def test_who_leaves_in_the_middle_leaves_nothing_behind(speech: Live) -> None:
    async def run() -> None:
        async with connect(f"{socket_url(speech)}/v1/realtime") as socket:
            await socket.send('{"type": "session.update", "session": {"audio": {"input": {"turn_detection": null}}}}')
            await socket.send(tone(300, 4)[HEADER:])
            await socket.send('{"type": "input_audio_buffer.commit"}')
            async with asyncio.timeout(30):
                while "committed" not in str(await socket.recv()):
                    pass

    asyncio.run(run())

    def busy() -> bool:
        found = speech.http.get("/metrics").text
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_realtime_sessions")
        values = re.findall(rf"^transduce:(?:{'|'.join(names)})\{{.*\}} (.+)$", found, re.MULTILINE)
        assert len(values) == 5
        return any(map(float, values))

    for _ in range(1000):
        if not busy():
            return
    raise AssertionError("something is still held")


def test_what_is_no_socket_is_told_so(speech: Live) -> None:
    told = speech.http.get("/v1/realtime")
    assert (told.status_code, told.headers["upgrade"]) == (426, "websocket")
    assert "open it with ws://" in told.json()["error"]["message"]


def test_the_example_says_why_it_is_refused_and_the_server_fails_nothing(
    speech: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clip = tmp_path / "clip.wav"
    clip.write_bytes(tone(900))
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "handlers", [caplog.handler])
    for url, why in ((f"{socket_url(speech)}/v1/realtime?model=no", "HTTP 404"), ("ws://127.0.0.1:1", "Connect")):
        monkeypatch.setattr(sys, "argv", ["live_transcription.py", str(clip), url])
        with pytest.raises(SystemExit, match=why):
            runpy.run_path(str(ROOT / "examples" / "live_transcription.py"), run_name="__main__")
    speech.http.get("/health")  # the server is done with the sockets
    assert not caplog.records


@pytest.mark.parametrize("source", range(2))
def test_the_documentation_s_clients(
    source: int, speech: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clip.wav").write_bytes(tone(900))
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/realtime.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    code = blocks[source].replace(ADDRESS, socket_url(speech)).replace("http://127.0.0.1:8000", address(speech))
    exec(compile(code.replace("openai/whisper-tiny", MODEL), "<snippet>", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_example(
    speech: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = tmp_path / "clip.wav"
    clip.write_bytes(tone(900))
    monkeypatch.setattr(sys, "argv", ["live_transcription.py", str(clip), f"{socket_url(speech)}/v1/realtime"])
    runpy.run_path(str(ROOT / "examples" / "live_transcription.py"), run_name="__main__")
    assert capsys.readouterr().out.strip()
