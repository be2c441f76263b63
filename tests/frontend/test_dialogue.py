"""A dialogue driven from an event loop."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from transduce.core.params import SamplingParams
from transduce.errors import EngineError
from transduce.frontend.ahead import Ahead
from transduce.frontend.collector import refused
from transduce.frontend.dialogue import Branches, Dialogue, Work, converse
from transduce.frontend.outputs import RequestOutput


def asking(*prompts: str) -> Dialogue[list[str]]:
    outputs = yield [Work(prompt, SamplingParams()) for prompt in prompts]
    (last,) = yield [Work("last", SamplingParams())]
    return [output.request_id for output in (*outputs, last)]


def test_work_runs_side_by_side_and_comes_back_in_order() -> None:
    async def talk() -> list[str]:
        second = asyncio.Event()

        async def run(work: Work) -> RequestOutput:
            if work.prompt == "second":
                second.set()
            await second.wait()
            return refused(str(work.prompt), EngineError())

        return await converse(asking("first", "second"), run)

    assert asyncio.run(talk()) == ["first", "second", "last"]


def test_work_that_fails_ends_the_others() -> None:
    ended: list[object] = []

    async def run(work: Work) -> RequestOutput:
        if work.prompt == "bad":
            raise EngineError("the step failed")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(work.prompt)
        raise AssertionError

    with pytest.raises(EngineError, match="the step failed"):
        asyncio.run(converse(asking("good", "bad"), run))
    assert ended == ["good"]


def test_branches_run_side_by_side_and_so_many_at_once() -> None:
    """Each waits for another, so there are two; a third would be seen."""
    running, most, both = set[object](), list[int](), asyncio.Barrier(2)
    heard: dict[str, str] = {}

    def branch(name: str) -> Dialogue[None]:
        for number in (1, 2):
            (output,) = yield [Work(f"{name}{number}", SamplingParams())]
            heard[name] = output.request_id

    def trunk() -> Dialogue[dict[str, str]]:
        yield Branches(map(branch, "abcd"), 2)
        return heard

    async def run(work: Work) -> RequestOutput:
        running.add(work.prompt)
        most.append(len(running))
        await both.wait()
        running.remove(work.prompt)
        return refused(str(work.prompt), EngineError())

    assert asyncio.run(converse(trunk(), run)) == {name: f"{name}2" for name in "abcd"}
    assert max(most) == 2


def test_what_is_leased_is_kept_until_what_is_asked_next_has_ended() -> None:
    events: list[str] = []

    async def run(work: Work) -> RequestOutput:
        events.append(str(work.prompt))
        return refused(str(work.prompt), EngineError())

    asyncio.run(
        converse(asking("first"), run, lambda outputs: events.extend(f"-{each.request_id}" for each in outputs))
    )
    assert events == ["first", "last", "-first", "-last"]


def test_what_a_thread_makes_is_waited_for_and_a_cancelled_dialogue_leaves_no_thread() -> None:
    threads: list[threading.Thread] = []

    def made() -> Iterator[Dialogue[None]]:
        threads.append(threading.current_thread())
        yield from map(branch, "ab")

    def branch(name: str) -> Dialogue[None]:
        yield [Work(name, SamplingParams())]

    def trunk() -> Dialogue[str]:
        with Ahead(made(), 1) as branches:
            yield branches.coming()
            yield Branches(branches, 2, branches.coming)
            yield [Work("last", SamplingParams())]
        return "done"

    async def talk() -> str:
        asked = asyncio.Event()

        async def run(work: Work) -> RequestOutput:
            if work.prompt == "last" and len(threads) > 1:
                asked.set()
                await asyncio.Event().wait()
            return refused(str(work.prompt), EngineError())

        result = await converse(trunk(), run)
        endless = asyncio.ensure_future(converse(trunk(), run))
        await asked.wait()
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        return result

    assert asyncio.run(talk()) == "done"
    assert len(threads) == 2
    assert not any(thread.is_alive() for thread in threads)
