"""`transduce serve` as a process of its own, as an operator runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ENTRY = "import sys; from transduce.cli import main; sys.exit(main())"
FLAGS = ("--dtype", "float32", "--kv-cache-bytes", "2000000", "--served-model-name", "tiny", "--log-format", "json")
PATIENCE = 60
"""Seconds after which something hangs."""


@dataclass(slots=True)
class Server:
    """url: once it listens. log: what it has logged so far."""

    process: subprocess.Popen[str]
    url: str
    log_file: Path
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def said(self, words: str) -> bool:
        """Whether a log message holds the words."""
        return any(words in line.get("message", "") for line in self.log)

    def wait_ready(self, status: int = 200) -> None:
        self.until(lambda: self.status("/ready") == status)

    def status(self, path: str) -> int:
        """0 where nobody answers."""
        with suppress(httpx.TransportError):
            return self.client.get(path).status_code
        return 0

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that is about to be so."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, self.log_file.read_text()
            time.sleep(0.02)

    def complete(self, **body: Any) -> httpx.Response:
        return self.client.post("/v1/completions", json={"model": "tiny", "prompt": "hello", **body})

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(PATIENCE)

    def engine(self) -> int:
        """The process id of its only child."""
        (child,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(child)


def run(folder: object, *flags: str) -> subprocess.CompletedProcess[str]:
    """A server that is not expected to start."""
    command = [sys.executable, "-c", ENTRY, "serve", str(folder), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@contextmanager
def server(folder: Path, log_file: Path, *flags: str) -> Iterator[Server]:
    """A server on a free port, killed at the end if it still runs. It may still be loading."""
    port = free_port()
    command = [sys.executable, "-c", ENTRY, "serve", str(folder), "--port", str(port), *FLAGS, *flags]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log_file.open("w") as log, subprocess.Popen(command, stderr=log, text=True, env=environment) as process:
        found = Server(process, f"http://127.0.0.1:{port}", log_file)
        try:
            found.until(lambda: process.poll() is not None or found.status("/health") == 200)
            yield found
        finally:
            found.client.close()
            process.kill()


def free_port() -> int:
    """A port that nobody listens on, now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
