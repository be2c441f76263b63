"""What a coroutine tells while it runs, as an iterator. Knows no engine."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def told(run: Callable[[Callable[[T], None]], Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
    """What run(tell) tells, from any thread, and at last its result; what it raises is raised. Closing this ends it."""
    loop = asyncio.get_running_loop()
    news: asyncio.Queue[T | None] = asyncio.Queue()

    def tell(said: T) -> None:
        loop.call_soon_threadsafe(news.put_nowait, said)

    running = asyncio.create_task(run(tell))
    running.add_done_callback(lambda _: news.put_nowait(None))
    try:
        while (said := await news.get()) is not None:
            yield said
        yield running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
