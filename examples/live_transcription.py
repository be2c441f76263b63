"""A recording transcribed while it plays: what is agreed stays, and what may still change is dim.

Usage: python examples/live_transcription.py FILE [URL]

URL: of a server of a model of speech; ws://127.0.0.1:8000/v1/realtime where it is left out.
"""

import asyncio
import json
import sys

from rich.live import Live
from rich.text import Text
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from transduce.errors import TransduceError
from transduce.media.audio import Samples, decode

RATE = 16_000
PIECE = RATE // 10
SESSION = {"audio": {"input": {"format": {"type": "audio/pcm", "rate": RATE}, "turn_detection": None}}}
"""The whole recording is one item, which the client ends."""


async def play(socket: ClientConnection, samples: Samples) -> None:
    """Send samples as fast as they are spoken."""
    await socket.send(json.dumps({"type": "session.update", "session": SESSION}))
    for start in range(0, len(samples), PIECE):
        await socket.send((samples[start : start + PIECE].clip(-1, 1) * 32767).astype("<i2").tobytes())
        await asyncio.sleep(PIECE / RATE)
    await socket.send(json.dumps({"type": "input_audio_buffer.commit"}))


async def show(socket: ClientConnection) -> None:
    """Show what is said until it is complete."""
    agreed = ""
    with Live() as screen:
        async for message in socket:
            event = json.loads(message)
            match event["type"].rpartition(".")[2]:
                case "delta":
                    agreed += event["delta"]
                case "partial":
                    screen.update(Text.assemble(agreed, " ", (event["partial"], "dim")))
                case "completed":
                    screen.update(Text(event["transcript"]))
                    return
                case "failed" | "error":
                    sys.exit(event["error"]["message"])


async def main(file: str, url: str = "ws://127.0.0.1:8000/v1/realtime") -> None:
    """Play a file to a server."""
    async with connect(url) as socket:
        playing = asyncio.create_task(play(socket, decode(file, RATE)))
        await show(socket)
        await playing


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python examples/live_transcription.py FILE [URL]")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except (OSError, WebSocketException, TransduceError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")
