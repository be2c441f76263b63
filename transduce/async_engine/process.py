"""The engine's process as its parent sees it: started, spoken to, listened to and started again.

Owns the pipe and the threads at this end of it. Knows no request: what a Step says is for whoever receives it.

The child is no child of `multiprocessing`, which would run the caller's main module in it: a script that uses AsyncLLM
needs no guard, and the engine's process holds nothing but the engine.
"""

import asyncio
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Literal

from transduce.async_engine.messages import Failed, FromEngine, Ready, Start, Step, ToEngine
from transduce.errors import EngineDeadError, TransduceError

log = logging.getLogger(__name__)

State = Literal["stopped", "loading", "ready", "restarting", "failed"]

ABSENT: Mapping[State, str] = {
    "stopped": "the engine is not running; start() it",
    "loading": "the engine is loading the model; try again when it is ready",
    "restarting": "the engine is being started again; try again in a moment",
    "failed": "the engine could not be started",
}
"""Why there is no engine, of states other than "ready"."""

CHILD = """
import sys
sys.path[:] = sys.argv[2:]
from transduce.async_engine.worker import main
main(int(sys.argv[1]))
"""
"""Arguments: the pipe's descriptor, and the paths that modules are imported from here."""

Receive = Callable[[Step], Callable[[], None]]
"""Called with each Step, in a thread; what it returns is then called in the event loop."""

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before the first attempt to restart, which double until the longest."""


class EngineProcess:
    """One process, from its start to its end."""

    def __init__(self, start: Start, receive: Receive) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._loaded: asyncio.Future[Ready | TransduceError] = self._loop.create_future()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Done when the process is gone; how it ended."""
        self._outbox: SimpleQueue[Start | ToEngine | None] = SimpleQueue()
        self._outbox.put(start)
        ours, theirs = Pipe()
        with theirs:
            self._process = _spawn(theirs.fileno())
        self._writer = threading.Thread(target=self._write, args=(ours,), name="engine-writer", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, args=(ours,), name="engine-reader", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process' id."""
        return self._process.pid

    def send(self, message: ToEngine) -> None:
        """Send a message, in any thread. Nothing happens where the process has ended."""
        self._outbox.put(message)

    async def loaded(self) -> Ready:
        """Wait until the engine is ready. Raises what loading it raised, or EngineDeadError."""
        answer = await asyncio.shield(self._loaded)
        if isinstance(answer, TransduceError):
            raise answer
        return answer

    async def kill(self) -> None:
        """End the process, which has nothing to save, and wait until it has."""
        self._process.kill()
        await asyncio.shield(self.ended)

    def _write(self, connection: Connection) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                connection.send(message)
            except OSError:
                return

    def _read(self, connection: Connection) -> None:
        try:
            for message in _messages(connection):
                self._take(message)
        finally:
            self._process.kill()
            how = _described(self._process.wait())
            self._outbox.put(None)
            self._writer.join()
            connection.close()
            self._tell(self._end, how)

    def _take(self, message: FromEngine) -> None:
        match message:
            case Step():
                self._tell(self._receive(message))
            case Ready():
                self._tell(self._loaded.set_result, message)
            case Failed(error):
                self._tell(self._loaded.set_result, error)
            case logging.LogRecord():
                logger = logging.getLogger(message.name)
                if logger.isEnabledFor(message.levelno):
                    logger.handle(message)

    def _end(self, how: str) -> None:
        if not self._loaded.done():
            self._loaded.set_result(EngineDeadError(f"the engine process ended while it loaded the model ({how})"))
        self.ended.set_result(how)

    def _tell(self, function: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody listens
            self._loop.call_soon_threadsafe(function, *args)


class Supervisor:
    """Keeps a process running: when one ends, the next one is started, after ever longer waits while that fails.

    receive: see EngineProcess. died: told, in the event loop, how a process that was ready has ended.
    """

    def __init__(self, start: Start, receive: Receive, died: Callable[[str], None]) -> None:
        self.state: State = "stopped"
        self._start = start
        self._receive = receive
        self._died = died
        self._process: EngineProcess | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process' id, if there is a process."""
        return None if self._process is None else self._process.pid

    async def start(self) -> Ready:
        """Start the first process. Raises what loading raises; nothing runs then."""
        self.state = "loading"
        process, ready = await self._launch()
        self.state = "ready"
        self._watching = asyncio.create_task(self._watch(process))
        return ready

    async def stop(self, state: State = "stopped") -> None:
        """End the process, if there is one, and do not start another."""
        self.state = state
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._process is not None:
            await self._process.kill()

    def send(self, message: ToEngine) -> None:
        """Send a message, in any thread. Nothing happens where there is nobody to read it."""
        if self._process is not None:
            self._process.send(message)

    async def _launch(self) -> tuple[EngineProcess, Ready]:
        process = self._process = EngineProcess(self._start, self._receive)
        try:
            return process, await process.loaded()
        except BaseException:
            await process.kill()
            raise

    async def _watch(self, process: EngineProcess) -> None:
        while True:
            how = await asyncio.shield(process.ended)
            self.state = "restarting"
            log.error("the engine process ended (%s); it is started again", how)
            self._died(how)
            process = await self._relaunch()
            self.state = "ready"
            log.info("the engine is ready again")

    async def _relaunch(self) -> EngineProcess:
        delay = FIRST_DELAY
        while True:
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY)
            try:
                return (await self._launch())[0]
            except (TransduceError, OSError) as error:
                log.error("the engine could not be started again: %s", error)


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    """In a process group of its own: Ctrl-C in a terminal is for the parent, which ends its engine when it is done."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(descriptor), *sys.path],
        stdin=subprocess.DEVNULL,
        pass_fds=[descriptor],
        process_group=0,
    )


def _messages(connection: Connection) -> Iterator[FromEngine]:
    """What the process sends until it ends."""
    with suppress(EOFError, OSError):
        while True:
            yield connection.recv()


def _described(code: int) -> str:
    if code == -signal.SIGKILL:
        return "killed by SIGKILL, as when memory runs out"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
