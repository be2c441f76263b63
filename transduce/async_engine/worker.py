"""The engine's process: load, then receive, step and report until the parent is gone.

Owns when something is said: one message a step at most, and none while there is nothing to say. Knows no text.
"""

import logging
import signal
import time
from contextlib import suppress
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from typing import Any

from transduce.async_engine.messages import Abort, Add, Failed, Finish, Ready, Start, Step, ToEngine
from transduce.async_engine.stats import stats_of
from transduce.core.output import Output
from transduce.engine import Engine
from transduce.errors import EngineError, RequestError, TransduceError

log = logging.getLogger(__name__)

PATIENCE = 0.1
"""Seconds within which stats are sent while the engine steps and nothing else is to be said."""


def main(descriptor: int) -> None:
    """Serve the parent at the other end of the pipe. Only its death, or a kill, ends this process.

    Signals that ask to end go to whole groups of processes, and it is for the parent to say when its engine may.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        _serve(connection)


def _serve(connection: Connection) -> None:
    start: Start = connection.recv()
    _log_to(connection, start.log_level)
    try:
        loaded = start.load(start.config)
    except TransduceError as error:
        connection.send(Failed(error))
        return
    connection.send(Ready(loaded.config, loaded.about, loaded.engine.room))
    Worker(loaded.engine, connection).run()


def _log_to(connection: Any, level: int) -> None:
    """Send what is logged to the parent, which knows how it is to be shown."""
    logging.getLogger().addHandler(_Sender(connection))
    logging.getLogger("transduce").setLevel(level)


class _Sender(QueueHandler):
    """Log records into a pipe."""

    queue: Any

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.send(record)


class Worker:
    """Steps an engine for the requests that come through a connection."""

    def __init__(self, engine: Engine, connection: Connection) -> None:
        self._engine = engine
        self._connection = connection
        self._quiet: dict[str, Output] = {}
        self._refused: list[tuple[str, TransduceError]] = []
        self._aborted: list[Output] = []
        self._seconds: list[float] = []
        self._steps = 0
        self._step_seconds = 0.0
        self._reported = time.perf_counter()

    def run(self) -> None:
        """Go on until the connection closes (EOFError, or OSError while sending)."""
        while True:
            self.turn()

    def turn(self) -> None:
        """Take what has come, waiting while there is nothing to do; step; report."""
        idle = not self._engine.unfinished
        while idle or self._connection.poll():
            self._take(self._connection.recv())
            idle = False
        self._report(self._step() if self._engine.unfinished else [])

    def _take(self, message: ToEngine) -> None:
        match message:
            case Add():
                self._add(message)
            case Finish(request_id, index, at):
                self._engine.finish(request_id, index, at)
            case Abort(request_id):
                self._abort(request_id)

    def _add(self, message: Add) -> None:
        request_id = message.request.request_id
        try:
            self._engine.add(message.request)
        except RequestError as error:
            self._refused.append((request_id, error))
        except Exception as error:
            log.exception("a request could not be added")
            self._refused.append((request_id, EngineError(f"the request failed: {type(error).__name__}: {error}")))
        else:
            if message.quiet:
                self._quiet[request_id] = Output(request_id)

    def _abort(self, request_id: str) -> None:
        self._engine.abort(request_id)
        output = self._quiet.pop(request_id, None) or Output(request_id)
        output.finished, output.last = True, time.time()
        self._aborted.append(output)

    def _step(self) -> list[Output]:
        began = time.perf_counter()
        outputs = self._engine.step()
        self._seconds.append(time.perf_counter() - began)
        self._steps += 1
        self._step_seconds += self._seconds[-1]
        return [said for output in outputs if (said := self._said(output)) is not None]

    def _said(self, output: Output) -> Output | None:
        """What is to be said of an output now."""
        so_far = self._quiet.get(output.request_id)
        if so_far is None:
            return output
        so_far.extend(output)
        if output.finished or output.error is not None:
            return self._quiet.pop(output.request_id)
        return Output(output.request_id, scheduled=output.scheduled) if output.scheduled is not None else None

    def _report(self, outputs: list[Output]) -> None:
        now = time.perf_counter()
        said = bool(outputs or self._aborted or self._refused)
        if said or not self._engine.unfinished or now - self._reported > PATIENCE:
            stats = stats_of(self._engine, self._steps, self._step_seconds)
            self._connection.send(Step(outputs + self._aborted, self._refused, stats, self._seconds))
            self._aborted, self._refused, self._seconds, self._reported = [], [], [], now
