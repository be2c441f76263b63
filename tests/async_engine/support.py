"""Engines that go wrong when told to, in a process of their own, and AsyncLLMs over them."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce import AsyncLLM, RequestOutput
from transduce import engine as engines
from transduce.config import EngineConfig
from transduce.core.output import Output
from transduce.core.plan import StepPlan, StepResult
from transduce.engine import Loaded
from transduce.errors import ConfigError

OPTIONS: dict[str, Any] = {"dtype": "float32", "kv_cache_bytes": 1 << 20}
FAIL, BLOCK, DIE, BREAK = 40, 41, 42, 43
"""Decoder prompts' second tokens: the step in which one is first seen raises, never ends, kills the process; the last
one's scheduler raises, so that the engine is not sound any more."""

PATIENCE = 60
"""Seconds until a test that waits for what does not come fails."""


def prompt(kind: int, text: str = "hello") -> dict[str, object]:
    """A prompt of which the engine makes something else than an answer."""
    return {"encoder_prompt": text, "decoder_prompt": [2, kind]}


def mean(config: EngineConfig) -> Loaded:
    """An engine that goes wrong when a prompt says so."""
    return _wrapped(engines.load(config), _misbehave)


@dataclass(frozen=True)
class Paced:
    """Loads an engine that makes a step for each byte in a FIFO."""

    fifo: Path

    def __call__(self, config: EngineConfig) -> Loaded:
        descriptor = os.open(self.fifo, os.O_RDWR)
        return _wrapped(engines.load(config), lambda plan: _wait(descriptor))


class Pace:
    """The other end of Paced's FIFO."""

    def __init__(self, folder: Path) -> None:
        self.load = Paced(folder / "pace")
        os.mkfifo(self.load.fifo)
        self._descriptor = os.open(self.load.fifo, os.O_RDWR)

    def steps(self, number: int) -> None:
        """Let the engine make so many more steps."""
        os.write(self._descriptor, b"." * number)

    def __enter__(self) -> "Pace":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True)
class Flaky:
    """Loads a mean engine the first time; the next `failures` times it does not load."""

    count: Path
    failures: int

    def __call__(self, config: EngineConfig) -> Loaded:
        with self.count.open("a") as file:
            file.write(".")
        times = len(self.count.read_text())
        if 1 < times <= 1 + self.failures:
            raise ConfigError(f"attempt {times} does not load")
        return mean(config)


def dead(config: EngineConfig) -> Loaded:
    """Dies while it loads."""
    os._exit(7)


def _wrapped(loaded: Loaded, before: Callable[[StepPlan], None]) -> Loaded:
    runner, scheduler = loaded.engine.runner, loaded.engine.scheduler
    run = runner.run

    def stepped(plan: StepPlan) -> StepResult:
        before(plan)
        if BREAK in _kinds(plan):
            scheduler.commit = _broken  # type: ignore[method-assign]
        return run(plan)

    runner.run = stepped  # type: ignore[method-assign]
    return loaded


def _kinds(plan: StepPlan) -> set[int]:
    return {chunk.tokens[1] for chunk in plan.chunks if chunk.start == 0 and len(chunk.tokens) > 1}


def _misbehave(plan: StepPlan) -> None:
    kinds = _kinds(plan)
    if FAIL in kinds:
        raise RuntimeError("out of luck")
    if BLOCK in kinds:
        threading.Event().wait()
    if DIE in kinds:
        os.kill(os.getpid(), signal.SIGKILL)


def _broken(result: StepResult) -> list[Output]:
    raise ZeroDivisionError("a bug")


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so; a test fails that waits in vain."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


async def collect(llm: AsyncLLM, *args: Any, **options: Any) -> list[RequestOutput]:
    """All outputs of one request."""
    async with asyncio.timeout(PATIENCE):
        return [output async for output in llm.generate(*args, **options)]


async def answer(llm: AsyncLLM, *args: Any, **options: Any) -> RequestOutput:
    """A request's last output."""
    return (await collect(llm, *args, **options))[-1]


def pid(llm: AsyncLLM) -> int:
    """The engine's process."""
    found = llm._engine.pid
    assert found is not None
    return found
