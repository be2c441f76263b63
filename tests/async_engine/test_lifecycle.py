"""An engine's process that does not load, blocks, breaks or is killed, and what AsyncLLM makes of it."""

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.async_engine.support import (
    BLOCK,
    BREAK,
    DIE,
    OPTIONS,
    PATIENCE,
    Flaky,
    Pace,
    answer,
    dead,
    mean,
    pid,
    prompt,
    until,
)
from transduce import AsyncLLM, CheckpointError, ConfigError, EngineDeadError, SamplingParams
from transduce.async_engine import process
from transduce.frontend.load import load_processor
from transduce.models.base import Processor

LONG = SamplingParams(max_tokens=50, ignore_eos=True)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FIRST_DELAY", 0.001)


def state(llm: AsyncLLM) -> str:
    """Not a property, of which mypy would think that it stays."""
    return llm.state


def idle(llm: AsyncLLM) -> bool:
    stats = llm.stats
    return (llm.live, stats.running, stats.waiting, stats.self_usage, stats.cross_usage) == (0, 0, 0, 0.0, 0.0)


@pytest.mark.parametrize(("kind", "failures"), [(DIE, 0), (BREAK, 1)])
def test_requests_inside_are_lost_and_later_ones_served(kind: int, failures: int, folder: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncLLM(folder, load=Flaky(tmp_path / "count", failures), **OPTIONS) as llm:
            before = (await answer(llm, "hello")).outputs[0].text
            counted = llm.stats
            tasks = [asyncio.create_task(answer(llm, prompt(kind, text))) for text in ("hello", "a cab")]
            for task in tasks:
                with pytest.raises(EngineDeadError, match="the engine process ended"):
                    await task
            assert state(llm) == "restarting"
            with pytest.raises(EngineDeadError, match="being started again; try again"):
                await answer(llm, "hello")
            with pytest.raises(EngineDeadError):
                await llm.check_health()
            await until(lambda: llm.state == "ready")
            assert len((tmp_path / "count").read_text()) == 2 + failures
            await llm.check_health()
            assert (await answer(llm, "hello")).outputs[0].text == before
            assert llm.stats.restarts == 1
            assert llm.stats.steps > counted.steps
            assert llm.stats.generation_tokens >= 2 * counted.generation_tokens
            assert idle(llm)

    asyncio.run(test())


def test_a_killed_process_takes_streams_with_it(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        with Pace(tmp_path) as pace:
            async with AsyncLLM(folder, load=pace.load, **OPTIONS) as llm:
                streams = [llm.generate("hello", LONG) for _ in range(3)]
                firsts = [asyncio.ensure_future(anext(each)) for each in streams]
                pace.steps(4)
                await asyncio.gather(*firsts)
                os.kill(pid(llm), signal.SIGKILL)
                for each in streams:
                    with pytest.raises(EngineDeadError, match="SIGKILL"):
                        async for _ in each:
                            pass
                await until(lambda: llm.state == "ready")
                pace.steps(50)
                assert (await answer(llm, "hello", LONG)).finished
                assert idle(llm)

    asyncio.run(test())
    assert "the engine process ended (killed by SIGKILL, as when memory runs out)" in caplog.text


def test_shutdown_waits_for_nobody(folder: Path) -> None:
    async def test() -> None:
        llm = AsyncLLM(folder, load=mean, **OPTIONS)
        await llm.start()
        task = asyncio.create_task(answer(llm, prompt(BLOCK)))
        await until(lambda: llm.live == 1)
        async with asyncio.timeout(PATIENCE):
            await llm.shutdown()
        with pytest.raises(EngineDeadError, match=r"was shut down|not running"):  # the prompt may still be read
            await task
        with pytest.raises(EngineDeadError, match=r"not running; start\(\) it"):
            await answer(llm, "hello")
        assert state(llm) == "stopped"
        await llm.shutdown()

    asyncio.run(test())


def test_leaving_a_blocked_engine_is_at_once(folder: Path) -> None:
    async def test() -> None:
        async with AsyncLLM(folder, load=mean, **OPTIONS) as llm:
            task = asyncio.create_task(answer(llm, prompt(BLOCK)))
            await until(lambda: llm.live == 1)
            task.cancel()
            await asyncio.wait([task], timeout=PATIENCE)
            assert task.cancelled()
            assert llm.live == 0

    asyncio.run(test())


def test_what_does_not_load_is_said_by_start(folder: Path, tmp_path: Path) -> None:
    async def refused(expected: type[Exception], match: str, *args: Any, **options: Any) -> None:
        llm = AsyncLLM(*args, **options)
        assert state(llm) == "stopped"
        with pytest.raises(expected, match=match):
            await llm.start()
        assert state(llm) == "failed"
        with pytest.raises(EngineDeadError, match="could not be started"):
            await answer(llm, "hello")

    asyncio.run(refused(CheckpointError, r"has no config\.json", tmp_path))
    asyncio.run(refused(ConfigError, "kv_cache_bytes", folder, kv_cache_bytes=1))
    asyncio.run(refused(EngineDeadError, r"while it loaded the model \(exit code 7\)", folder, load=dead))
    with pytest.raises(ConfigError, match="did you mean max_num_seqs"):
        AsyncLLM(folder, max_num_seq=3)


def test_start_is_once_and_may_be_cancelled(folder: Path) -> None:
    async def test() -> None:
        llm = AsyncLLM(folder, **OPTIONS)
        starting = asyncio.create_task(llm.start())
        await until(lambda: llm.state == "loading")
        with pytest.raises(EngineDeadError, match="loading the model"):
            await llm.check_health()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert state(llm) == "failed"
        await asyncio.gather(llm.start(), llm.start())
        assert state(llm) == "ready"
        first = pid(llm)
        await llm.start()
        assert pid(llm) == first
        assert (await answer(llm, "hello")).finished
        await llm.shutdown()

    asyncio.run(test())


def test_ready_is_when_prompts_can_be_read_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = threading.Event()

    def slow(*args: Any) -> Processor:
        assert read.wait(PATIENCE)
        return load_processor(*args)

    async def test() -> None:
        llm = AsyncLLM(folder, **OPTIONS)
        starting = asyncio.create_task(llm.start())
        await until(lambda: llm._engine.state == "ready")
        with pytest.raises(EngineDeadError, match="loading the model"):
            await answer(llm, "hello")
        read.set()
        await starting
        await llm.check_health()
        await llm.shutdown()

    monkeypatch.setattr("transduce.async_engine.llm.load_processor", slow)
    asyncio.run(test())


def test_the_engines_log_is_the_parents(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with AsyncLLM(folder, **OPTIONS):
            pass

    caplog.set_level(logging.INFO, "transduce")
    asyncio.run(test())
    (record,) = [record for record in caplog.records if "tokens of self KV" in record.getMessage()]
    assert record.name.startswith("transduce.")
    assert record.process != os.getpid()


SCRIPT = """
import asyncio, sys, time
from transduce import AsyncLLM

async def main():
    llm = AsyncLLM(sys.argv[1], dtype="float32", kv_cache_bytes=1 << 20)
    await llm.start()
    print(llm._engine.pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@contextmanager
def watched(number: int) -> Iterator[int]:
    descriptor = os.pidfd_open(number)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_the_engine_does_not_outlive_its_parent(folder: Path, tmp_path: Path) -> None:
    """The script has no guard against being imported, either."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command, environment = [sys.executable, str(script), str(folder)], {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        with watched(int(parent.stdout.readline())) as engine:
            assert not select.select([engine], [], [], 0)[0]
            parent.kill()
            assert select.select([engine], [], [], PATIENCE)[0]
