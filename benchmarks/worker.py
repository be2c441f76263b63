"""An engine in a process of its own, which sleeps until it is asked.

Owns the process, the pipe and the clock, which runs where the engine is. Knows nothing of what an engine does.
"""

import os
import resource
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from traceback import format_exc
from types import TracebackType
from typing import Any, Protocol, Self

import transduce  # noqa: F401  # calms OpenMP's threads, by a variable that the workers inherit: all sleep when idle


class Engine(Protocol):
    """What is measured. `axes(work)`: the settings to try, first guess first. `run(work, **settings)`: its amount."""

    def axes(self, work: Any) -> dict[str, tuple[Any, ...]]: ...

    def run(self, *args: Any, **settings: Any) -> float: ...


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


class WorkerError(Exception):
    """The engine raised, or its process ended."""


class Worker:
    """`make(*args)` in a new process, that is, once it is needed: the constructor does not wait for it."""

    def __init__(self, name: str, make: Callable[..., Engine], *args: Any) -> None:
        self.name = name
        context = get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, make, args), daemon=True)
        self._process.start()
        far_end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.join()

    def rate(self, work: Any, **settings: Any) -> float:
        """Amount of work per second."""
        amount, seconds = self.call("run", work, **settings)
        return float(amount / seconds)

    def seconds(self, work: Any, **settings: Any) -> float:
        """How long the work takes."""
        return float(self.call("run", work, **settings)[1])

    def ask(self, name: str, *args: Any) -> Any:
        """What the engine's method returns."""
        return self.call(name, *args)[0]

    def peak_bytes(self) -> int:
        """Most memory that the process has held."""
        return int(self.ask(""))

    def call(self, name: str, *args: Any, **settings: Any) -> tuple[Any, float]:
        """What the engine's method returns, and the seconds it took. Raises WorkerError."""
        try:
            self._pipe.send((name, args, settings))
            failed, value, seconds = self._pipe.recv()
        except (EOFError, BrokenPipeError):
            raise WorkerError(f"the process of {self.name} ended") from None
        if failed:
            raise WorkerError(f"{self.name} failed:\n{value}")
        return value, seconds


def _serve(pipe: Connection, make: Callable[..., Engine], args: tuple[Any, ...]) -> None:
    """Answer until the other end closes."""
    engine: Engine | None = None
    while True:
        try:
            name, positional, settings = pipe.recv()
        except EOFError:
            return
        try:
            engine = engine or make(*args)
            method = getattr(engine, name) if name else _peak_bytes
            start = time.perf_counter()
            value = method(*positional, **settings)
            pipe.send((False, value, time.perf_counter() - start))
        except Exception:  # noqa: BLE001  # whatever it is, the other end is told
            pipe.send((True, format_exc(), 0.0))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
