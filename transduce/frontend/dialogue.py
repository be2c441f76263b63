"""Dialogues: work that depends on what earlier work gave, without a word about who runs it.

Owns what is said between such work and its driver. `Batch` drives many of them through one engine, `converse` one from
an event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from transduce.frontend.frontend import Params
from transduce.frontend.outputs import RequestOutput

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One prompt to run. options: the family's own, such as language and task."""

    prompt: object
    params: Params
    options: Mapping[str, object] = field(default_factory=dict)


Dialogue = Generator[Sequence[Work], Sequence[RequestOutput], T]
"""Yields Work to be run side by side, some at a time, and is sent what became of it, in the same order.

It returns its result. Work that failed has its output's `error` set, or ends the dialogue, as the driver likes. A
dialogue may raise RequestError itself.
"""


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A dialogue is over."""

    result: T


def once(work: Work) -> Dialogue[RequestOutput]:
    """What becomes of one prompt."""
    (output,) = yield [work]
    return output


def advance(dialogue: Dialogue[T], outputs: Sequence[RequestOutput] | None) -> Sequence[Work] | Done[T]:
    """What a dialogue says to the outputs of the Work it asked for, None at its beginning."""
    try:
        return next(dialogue) if outputs is None else dialogue.send(outputs)
    except StopIteration as end:
        return Done(end.value)


async def converse(dialogue: Dialogue[T], run: Callable[[Work], Coroutine[Any, Any, RequestOutput]]) -> T:
    """A dialogue's result. run: one Work's output; what it raises ends the dialogue's other Work, and is raised.

    The dialogue itself runs in a thread: it may decode media.
    """
    said = await asyncio.to_thread(advance, dialogue, None)
    while not isinstance(said, Done):
        running = [asyncio.ensure_future(run(work)) for work in said]
        try:
            outputs = await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
        said = await asyncio.to_thread(advance, dialogue, outputs)
    return said.result
