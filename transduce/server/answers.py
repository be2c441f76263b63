"""The prompts of one HTTP request, run side by side, and their outputs taken apart into what is new.

Owns the order of choices, how many prompts are in the engine at a time, and that one prompt's failure is the HTTP
request's. Knows no route's form of an answer.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Depends, Request

from transduce.frontend.frontend import Params
from transduce.frontend.outputs import CompletionOutput, Logprob, RequestOutput
from transduce.server.errors import NotServed
from transduce.server.protocol.base import Usage, usage
from transduce.server.protocol.prompt_logprobs import PromptLogprobs, prompt_logprobs
from transduce.server.service import Service

Stream = AsyncGenerator[RequestOutput, None]


async def _service(http: Request) -> Service:
    service: Service = http.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]
"""The service, as an argument of a route."""


async def takes_messages(service: Serving) -> None:
    """A route's condition: the model answers text, or images beside it."""
    if "text" not in service.modalities:
        raise NotServed(f"{service.names[0]} takes audio, not text; use /v1/audio/transcriptions")


async def takes_text(service: Serving) -> None:
    """A route's condition: the model's encoder takes text alone."""
    await takes_messages(service)
    if "image" in service.modalities:
        raise NotServed(f"{service.names[0]} takes images beside text; use /v1/chat/completions")


async def has_room(service: Serving) -> None:
    """A route's condition: not too many prompts wait. Where all do alike, asked before the request is looked at."""
    if not service.options.priority:
        service.check_room()


def head(kind: str, form: str, http: Request, service: Service) -> dict[str, Any]:
    """What every response and every chunk of a request begins with."""
    return {
        "id": f"{kind}-{http.state.record.request_id}",
        "object": form,
        "created": int(time.time()),
        "model": service.names[0],
    }


@dataclass(frozen=True, slots=True)
class Piece:
    """A choice, or what is new of it.

    index: among all prompts' answers. prompt: whose answer it is. answer: text, tokens and log-probabilities, the new
    ones alone. first: whether nothing came before. offset: characters of the token texts before, where
    log-probabilities are asked for. prompt_logprobs: the prompt's, where they are asked for.
    """

    index: int
    prompt: int
    answer: CompletionOutput
    first: bool = True
    offset: int = 0
    prompt_logprobs: PromptLogprobs | None = None


class Answers:
    """What becomes of several prompts, of `width` answers each, `at_once` of them side by side. Iterate once, by
    `pieces`, or by `whole` or `outputs`; then ask for the usage.
    """

    def __init__(self, streams: Sequence[Stream], width: int, at_once: int) -> None:
        self._streams = streams
        self._width = width
        self._at_once = at_once
        self._outputs: dict[int, RequestOutput] = {}

    @property
    def usage(self) -> Usage:
        """Of all prompts, so far."""
        return usage(*self._outputs.values())

    async def whole(self) -> list[Piece]:
        """All choices, once they are complete."""
        return [
            Piece(at * self._width + answer.index, at, answer, prompt_logprobs=prompt_logprobs(output))
            for at, output in enumerate(await self.outputs())
            for answer in output.outputs
        ]

    async def outputs(self) -> list[RequestOutput]:
        """Those of all prompts, once they are complete."""
        async for _ in self._side_by_side():
            pass
        return [output for _, output in sorted(self._outputs.items())]

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """What is new of the choices, as it comes."""
        told: dict[int, _Told] = {}
        async with aclosing(self._side_by_side()) as outputs:
            async for at, output in outputs:
                for answer in output.outputs:
                    index = at * self._width + answer.index
                    before = told.setdefault(index, _Told())
                    if before.differs(answer):
                        yield Piece(index, at, before.news(answer), before.first, before.offset)
                        before.tell(answer)

    async def chunks(
        self, about: Mapping[str, Any], choices: Callable[[Piece], Iterable[Any]], *, with_usage: bool
    ) -> AsyncGenerator[dict[str, Any], None]:
        """A stream's chunks, each `about` with one of the choices that a piece makes. with_usage: in one more."""
        usage = {"usage": None} if with_usage else {}
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                for choice in choices(piece):
                    yield {**about, "choices": [choice], **usage}
        if with_usage:
            yield {**about, "choices": [], "usage": self.usage}

    async def _side_by_side(self) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Outputs and the prompts they belong to. The first error ends all."""
        async with aclosing(_merged(self._streams, self._at_once)) as outputs:
            async for at, output in outputs:
                self._outputs[at] = output
                yield at, output


def answers(service: Service, params: Params, streams: Sequence[Stream]) -> Answers:
    """Those of prompts with the same parameters, of which as many are in the engine at a time as can run there."""
    resolver = service.llm.frontend.resolver
    at_once = max(1, service.llm.config.max_num_seqs // resolver.width(params))
    return Answers(streams, resolver.answers(params), at_once)


@dataclass(slots=True)
class _Told:
    """How much of a choice was told."""

    text: int = 0
    tokens: int = 0
    offset: int = 0
    first: bool = True
    finished: bool = False

    def differs(self, answer: CompletionOutput) -> bool:
        """Whether there is something to tell."""
        ended = answer.finish_reason is not None and not self.finished
        more = answer.logprobs is not None and len(answer.token_ids) > self.tokens
        return ended or more or len(answer.text) > self.text

    def news(self, answer: CompletionOutput) -> CompletionOutput:
        """What is new of the answer."""
        logprobs = None if answer.logprobs is None else answer.logprobs[self.tokens :]
        return replace(
            answer, text=answer.text[self.text :], token_ids=answer.token_ids[self.tokens :], logprobs=logprobs
        )

    def tell(self, answer: CompletionOutput) -> None:
        """The answer has been told so far."""
        if answer.logprobs is not None:
            new = zip(answer.token_ids[self.tokens :], answer.logprobs[self.tokens :], strict=True)
            self.offset += sum(len(token_text(token, table[token])) for token, table in new)
        self.text, self.tokens = len(answer.text), len(answer.token_ids)
        self.first, self.finished = False, answer.finish_reason is not None


def token_text(token: int, logprob: Logprob, *, as_id: bool = False) -> str:
    """A token by its text, or where there is none, or as wanted, by its id."""
    text = logprob.decoded_token
    return f"token_id:{token}" if as_id or text is None else text


_News = tuple[int, RequestOutput] | Exception | None
"""A stream's place and what it gave; or what one raised; or the end of a pump."""


async def _merged(streams: Sequence[Stream], at_once: int) -> AsyncGenerator[tuple[int, RequestOutput], None]:
    """What several streams give, as it comes, each begun as one before it ends. One alone needs no tasks."""
    if len(streams) == 1:
        async with aclosing(streams[0]):
            async for output in streams[0]:
                yield 0, output
        return
    ready: asyncio.Queue[_News] = asyncio.Queue(maxsize=1)
    left = iter(enumerate(streams))
    pumps = [asyncio.create_task(_pump(left, ready)) for _ in range(min(at_once, len(streams)))]
    try:
        running = len(pumps)
        while running:
            news = await ready.get()
            if isinstance(news, Exception):
                raise news
            if news is None:
                running -= 1
            else:
                yield news
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(left: Iterator[tuple[int, Stream]], ready: asyncio.Queue[_News]) -> None:
    """Put what one stream after the other gives, and at last None or what one raised, where others wait for it."""
    try:
        for at, stream in left:
            async with aclosing(stream):
                async for output in stream:
                    await ready.put((at, output))
    except Exception as error:  # noqa: BLE001  # raised again where it is taken
        await ready.put(error)
    else:
        await ready.put(None)
