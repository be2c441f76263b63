"""How requests end before their answer does: refused, aborted, left alone, or in a step that fails."""

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.async_engine.support import FAIL, OPTIONS, Pace, answer, collect, pid, prompt, until
from transduce import AsyncLLM, CapacityError, ConfigError, EngineError, RequestError, SamplingParams
from transduce.async_engine.messages import Abort, Add, ToEngine

LONG = SamplingParams(max_tokens=50, ignore_eos=True)


def test_a_bad_prompt_raises_and_leaves_nothing(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    with pytest.raises(RequestError, match="is empty"):
        loop.run(answer(shared, ""))
    with pytest.raises(CapacityError, match="101 tokens and the model takes 64"):
        loop.run(answer(shared, "a" * 99))
    with pytest.raises(RequestError, match="of type dict: use SamplingParams"):
        loop.run(answer(shared, "x", {"temperature": 0}))
    with pytest.raises(RequestError, match="takes no option language"):
        loop.run(answer(shared, "x", options={"language": "en"}))
    with pytest.raises(ConfigError, match="transcribes no speech"):
        loop.run(shared.transcribe(b""))
    assert shared.live == 0


def test_what_can_never_fit_is_refused_by_the_engine(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    with pytest.raises(CapacityError, match="max_num_seqs=64"):
        loop.run(answer(shared, "x", SamplingParams(n=65, temperature=1.0)))
    assert shared.live == 0


def test_an_id_is_one_requests_at_a_time(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    async def twice() -> None:
        async with aclosing(shared.generate("hello", LONG, "same")) as first:
            await anext(first)
            with pytest.raises(RequestError, match="'same' is in use"):
                await answer(shared, "hello", LONG, "same")
        await answer(shared, "hello", LONG, "same")

    loop.run(twice())


def test_a_step_that_fails_ends_its_requests_alone(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    process = pid(shared)
    for stream in (True, False):
        with pytest.raises(EngineError, match="the step failed: RuntimeError: out of luck"):
            loop.run(answer(shared, prompt(FAIL), stream=stream))
    assert loop.run(answer(shared, "hello")).finished
    assert pid(shared) == process
    assert shared.stats.restarts == 0


def test_an_answer_that_cannot_be_read_ends_alone(
    shared: AsyncLLM, loop: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the engine does not go on with it."""
    tokenizer, said = shared.get_tokenizer(), list[ToEngine]()
    send = shared._engine.send

    def noted(message: ToEngine) -> None:
        said.append(message)
        send(message)

    monkeypatch.setattr(shared._engine, "send", noted)

    def broken(*args: object, **options: object) -> str:
        raise OverflowError("no text")

    with monkeypatch.context() as patch:
        patch.setattr(tokenizer, "decode", broken)
        with pytest.raises(EngineError, match="could not be read: OverflowError: no text"):
            loop.run(answer(shared, "hello"))
    assert [type(message) for message in said] == [Add, Abort]
    assert loop.run(answer(shared, "hello")).finished
    assert shared.live == 0


@pytest.mark.parametrize("stream", [True, False])
def test_an_aborted_request_says_so(stream: bool, folder: Path, tmp_path: Path) -> None:
    async def abort() -> None:
        with Pace(tmp_path) as pace:
            async with AsyncLLM(folder, load=pace.load, **OPTIONS) as llm:
                asked = asyncio.create_task(collect(llm, "hello", LONG, "gone", stream=stream))
                pace.steps(3)
                await until(lambda: llm.live and not llm.waiting)
                await llm.abort("gone")
                await llm.abort("never there")
                pace.steps(1)
                (found,) = (await asked)[-1].outputs
                assert found.finish_reason == "abort"
                assert len(found.token_ids) in range(1, 5)
                await until(lambda: llm.stats.running == 0)
                assert (llm.stats.self_usage, llm.stats.cross_usage, llm.live) == (0.0, 0.0, 0)

    asyncio.run(abort())


@pytest.mark.parametrize("leave", ["close", "cancel"])
def test_leaving_frees_everything_within_a_step(leave: str, folder: Path, tmp_path: Path) -> None:
    async def test() -> None:
        with Pace(tmp_path) as pace:
            async with AsyncLLM(folder, load=pace.load, **OPTIONS) as llm:
                outputs = llm.generate("hello", LONG)
                pace.steps(1)
                await anext(outputs)
                assert llm.stats.self_usage > 0
                assert llm.stats.cross_usage > 0
                if leave == "close":
                    await outputs.aclose()
                else:
                    task = asyncio.ensure_future(anext(outputs))
                    await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
                assert llm.live == 0
                pace.steps(1)  # the one that it is in, or the next
                await until(lambda: llm.stats.running == 0)
                assert (llm.stats.self_usage, llm.stats.cross_usage) == (0.0, 0.0)
                assert llm.stats.steps <= 2

    asyncio.run(test())


def test_leaving_while_the_prompt_is_read_asks_nothing_of_the_engine(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    async def leave() -> None:
        before = shared.stats.encoder_cache_queries
        with shared.frontend.lock:
            task = asyncio.ensure_future(anext(shared.generate("hello", LONG, "early")))
            await until(lambda: shared.live == 1)
            assert shared.waiting == 1
            task.cancel()
            await asyncio.wait([task])
        assert shared.live == 0
        await answer(shared, "another")
        assert shared.stats.encoder_cache_queries == before + 1

    loop.run(leave())


def test_long_prompts_hold_nobody_up_and_can_be_left(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    """However many there are: they wait for each other, and not in the threads that read all else."""
    short = SamplingParams(truncate_prompt_tokens=8, max_tokens=1)

    async def crowd() -> None:
        with shared.frontend.readers._long:
            tasks = [asyncio.ensure_future(anext(shared.generate("a" * 30_000, short))) for _ in range(50)]
            await answer(shared, "hello")
            assert shared.waiting == 50
            for task in tasks[1:]:
                task.cancel()
            await asyncio.wait(tasks[1:])
            assert shared.live == 1
        await tasks[0]

    loop.run(crowd())


def test_an_abort_while_the_prompt_is_read_counts(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    async def abort() -> str | None:
        with shared.frontend.lock:
            task = asyncio.create_task(answer(shared, "hello", LONG, "early"))
            await until(lambda: shared.live == 1)
            await shared.abort("early")
        return (await task).outputs[0].finish_reason

    assert loop.run(abort()) == "abort"


def test_signals_to_the_whole_group_are_the_parents(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    process = pid(shared)
    os.kill(process, signal.SIGINT)
    os.kill(process, signal.SIGTERM)
    assert loop.run(answer(shared, "hello")).finished
    assert pid(shared) == process
    assert os.getpgid(process) != os.getpgid(0)
