"""A server that answers as it is told, and clips to send to one."""

import json
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Posted:
    """What the server was sent."""

    path: str
    headers: Message
    content: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True, slots=True)
class Answer:
    """What it answers: pieces that are sent one after another. `whole` False breaks off after them."""

    pieces: list[bytes]
    media_type: str = "application/json"
    status: int = 200
    whole: bool = True


def completion(posted: Posted) -> Answer:
    """As many words as tokens were asked for, and a usage of so many; streamed if that was asked for."""
    body = posted.body
    count = body["max_tokens"]
    usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": count}
    if not body.get("stream"):
        return Answer([json.dumps({"choices": [{"text": "word " * count}], "usage": usage}).encode()])
    pieces = [event({"choices": [{"text": "word "}]}) for _ in range(count)]
    return Answer([*pieces, event({"choices": [], "usage": usage}), b"data: [DONE]\n\n"], "text/event-stream")


def transcription(posted: Posted) -> Answer:
    """Two words, as OpenAI streams them."""
    pieces = [event({"type": "transcript.text.delta", "delta": word}) for word in ("two ", "words")]
    usage = {"type": "tokens", "input_tokens": 3, "output_tokens": 2}
    done = event({"type": "transcript.text.done", "text": "two words", "usage": usage})
    return Answer([*pieces, done], "text/event-stream")


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


@dataclass(slots=True)
class Fake:
    """A running server: its address, and what it was sent."""

    url: str
    posted: list[Posted] = field(default_factory=list)


@contextmanager
def serving(answer: Callable[[Posted], Answer], models: Answer | None = None) -> Iterator[Fake]:
    """A server on a free port, of one model named `fake` unless `models` says otherwise."""
    fake = Fake("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(models or Answer([b'{"data": [{"id": "fake"}]}']))

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            fake.posted.append(Posted(self.path, self.headers, content))
            self._send(answer(fake.posted[-1]))

        def _send(self, said: Answer) -> None:
            self.send_response(said.status)
            self.send_header("content-type", said.media_type)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in said.pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if said.whole:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = not said.whole

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        fake.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()


def clip(path: Path, seconds: float) -> Path:
    """A tone at 16 kHz."""
    samples = (np.sin(np.arange(int(16_000 * seconds)) / 20) * 9_000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
    return path
