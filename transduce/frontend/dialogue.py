"""Dialogues: work that depends on what earlier work gave, without a word about who runs it.

Owns what is said between such work and its driver. `Batch` drives many of them through one engine, `converse` one from
an event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from transduce.frontend.frontend import Params
from transduce.frontend.outputs import RequestOutput

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One prompt to run. options: the family's own, such as language and task. tell: of a driver that streams, is told
    the answer so far, time and again, before it is finished. leases: what its source was encoded to is kept until what
    the dialogue asks next has ended, for that is likely to be about the same source.
    """

    prompt: object
    params: Params
    options: Mapping[str, object] = field(default_factory=dict)
    tell: Callable[[RequestOutput], None] | None = None
    leases: bool = False


Dialogue = Generator["Sequence[Work] | Branches | Future[Any]", Sequence[RequestOutput], T]
"""Yields Work to be run side by side, some at a time, and is sent what became of it, in the same order.

Where it yields a Future it goes on when that is done, and is sent nothing: it waits for a thread of its own.

It returns its result. Work that failed has its output's `error` set, or ends the dialogue, as the driver likes. A
dialogue may raise RequestError itself.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """Dialogues that a dialogue waits for while they run side by side, `most` at once, each with its own next question.

    dialogues: taken one at a time, when the driver has room for one more. Neither it nor any of them raises
    RequestError. The dialogue is sent nothing: what the branches found is where they left it. coming: what
    taking the next one waits for; None: for nothing.
    """

    dialogues: Iterator[Dialogue[None]]
    most: int
    coming: Callable[[], Future[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A dialogue is over."""

    result: T


Run = Callable[[Work], Coroutine[Any, Any, RequestOutput]]
Release = Callable[[Sequence[RequestOutput]], None]


def once(work: Work) -> Dialogue[RequestOutput]:
    """What becomes of one prompt."""
    (output,) = yield [work]
    return output


def advance(
    dialogue: Dialogue[T], outputs: Sequence[RequestOutput] | None
) -> Sequence[Work] | Branches | Future[Any] | Done[T]:
    """What a dialogue says to the outputs of what it asked for, None at its beginning."""
    try:
        return next(dialogue) if outputs is None else dialogue.send(outputs)
    except StopIteration as end:
        return Done(end.value)


async def converse(dialogue: Dialogue[T], run: Run, release: Release = lambda outputs: None) -> T:
    """A dialogue's result. run: one Work's output; what it raises ends the dialogue's other Work, and is raised.

    release: is told outputs whose Work leases nothing any more. The dialogue itself runs in a thread: it may decode
    media.
    """
    before = list[RequestOutput]()
    try:
        said = await _in_thread(advance, dialogue, None)
        while not isinstance(said, Done):
            outputs = await _answered(said, run, release)
            if not isinstance(said, Future):
                release(before)
                before = outputs
            said = await _in_thread(advance, dialogue, outputs)
    finally:
        release(before)
        await _in_thread(dialogue.close)
    return said.result


async def _answered(said: Sequence[Work] | Branches | Future[Any], run: Run, release: Release) -> list[RequestOutput]:
    match said:
        case Future():
            await _done(said)
            return []
        case Branches():
            await _branch(said, run, release)
            return []
        case _:
            return await gathered(map(run, said))


async def _branch(branches: Branches, run: Run, release: Release) -> None:
    turn = asyncio.Lock()

    async def follow() -> None:
        while True:
            async with turn:
                if branches.coming is not None:
                    await _done(branches.coming())
                dialogue = next(branches.dialogues, None)
            if dialogue is None:
                return
            await converse(dialogue, run, release)

    await gathered(follow() for _ in range(branches.most))


async def _done(future: Future[Any]) -> None:
    """What it raises, its `result` will say."""
    await asyncio.gather(asyncio.wrap_future(future), return_exceptions=True)


async def _in_thread(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """What a function returns in a thread. One who is cancelled waits for its end."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **options))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


async def gathered(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What they return, in their order; where one raises, none goes on."""
    running = [*map(asyncio.ensure_future, coroutines)]
    try:
        return await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
