"""Dialogues: work that depends on what earlier work gave, without a word about who runs it.

Owns what is said between such work and its driver. `Batch` drives many of them through one engine, `converse` one from
an event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from transduce.frontend.frontend import Params
from transduce.frontend.outputs import RequestOutput

T = TypeVar("T")


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


Dialogue = Generator["Sequence[Work] | Branches", Sequence[RequestOutput], T]
"""Yields Work to be run side by side, some at a time, and is sent what became of it, in the same order.

It returns its result. Work that failed has its output's `error` set, or ends the dialogue, as the driver likes. A
dialogue may raise RequestError itself.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """Dialogues that a dialogue waits for while they run side by side, `most` at once, each with its own next question.

    dialogues: taken one at a time, when the driver has room for one more. Neither it nor any of them raises
    RequestError. The dialogue is sent nothing: what the branches found is where they left it.
    """

    dialogues: Iterator[Dialogue[None]]
    most: int


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


def advance(dialogue: Dialogue[T], outputs: Sequence[RequestOutput] | None) -> Sequence[Work] | Branches | Done[T]:
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
    said, before = await asyncio.to_thread(advance, dialogue, None), list[RequestOutput]()
    try:
        while not isinstance(said, Done):
            outputs = await _branch(said, run, release) if isinstance(said, Branches) else await _all(map(run, said))
            release(before)
            before = outputs
            said = await asyncio.to_thread(advance, dialogue, outputs)
    finally:
        release(before)
    return said.result


async def _branch(branches: Branches, run: Run, release: Release) -> list[RequestOutput]:
    turn = asyncio.Lock()

    async def follow() -> None:
        while True:
            async with turn:
                dialogue = await asyncio.to_thread(next, branches.dialogues, None)
            if dialogue is None:
                return
            await converse(dialogue, run, release)

    await _all(follow() for _ in range(branches.most))
    return []


async def _all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What they return, in their order; where one raises, none goes on."""
    running = [*map(asyncio.ensure_future, coroutines)]
    try:
        return await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
