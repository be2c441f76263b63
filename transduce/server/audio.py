"""/v1/audio/transcriptions and /translations: a clip in a form, its text back, whole or as it comes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from transduce.media.audio import seconds
from transduce.server import sse
from transduce.server.answers import Serving
from transduce.server.errors import NotServed, documented
from transduce.server.protocol.audio import AudioRequest, TextDelta, TextDone, Transcript, usage
from transduce.server.service import Service
from transduce.speech.transcription import Transcription


async def transcribes(service: Serving) -> None:
    """A route's condition: the model takes speech."""
    if "transcribe" not in service.tasks:
        raise NotServed(f"{service.names[0]} takes text, not audio; use /v1/completions or /v1/chat/completions")


async def translates(service: Serving) -> None:
    """A route's condition: the model knows several languages."""
    if language := service.llm.frontend.processor.language:
        raise NotServed(f"{service.names[0]} only knows {language!r} and cannot translate")


router = APIRouter(tags=["audio"], dependencies=[Depends(transcribes)])

Asked = Annotated[AudioRequest, Form(media_type="multipart/form-data")]


@router.post(
    "/v1/audio/transcriptions", response_model=Transcript, responses=documented("text/plain", "text/event-stream")
)
async def transcribe(body: Asked, http: Request, service: Serving) -> Response:
    """What is said in a clip."""
    return await _answer(body, http, service, "transcribe")


@router.post(
    "/v1/audio/translations",
    response_model=Transcript,
    responses=documented("text/plain", "text/event-stream"),
    dependencies=[Depends(translates)],
)
async def translate(body: Asked, http: Request, service: Serving) -> Response:
    """What is said in a clip, in English."""
    return await _answer(body, http, service, "translate")


async def _answer(body: AudioRequest, http: Request, service: Service, task: str) -> Response:
    service.check_model(body.model)
    with body.blamed():
        return await _heard(body, http, service, task)


async def _heard(body: AudioRequest, http: Request, service: Service, task: str) -> Response:
    params, clip = body.params(), await body.file.read()
    rows = service.llm.frontend.spec.fixed_rows or 0
    transcribed = service.transcribe(
        http, clip, body.language, task, body.prompt, params, timestamps=False, stream=body.stream
    )
    heard = _noted(transcribed, clip, rows, http, service)
    if body.stream:
        return await sse.respond(_events(heard, rows))
    async with aclosing(heard):
        made = await anext(heard)
    if body.response_format == "text":
        return PlainTextResponse(made.text + "\n")
    return JSONResponse(Transcript(text=made.text, usage=usage(made.output, rows)))


async def _noted(
    heard: AsyncGenerator[Transcription, None], clip: bytes, rows: int, http: Request, service: Service
) -> AsyncGenerator[Transcription, None]:
    """The same, and what was heard is in the log and the metrics."""
    async with aclosing(heard):
        async for made in heard:
            if made.output.finished:
                length = await asyncio.to_thread(seconds, clip)
                http.state.record.heard(length, rows)
                service.metrics.heard(length)
            yield made


async def _events(heard: AsyncGenerator[Transcription, None], rows: int) -> sse.Events:
    told = 0
    async with aclosing(heard):
        async for made in heard:
            if len(made.text) > told:
                yield TextDelta(type="transcript.text.delta", delta=made.text[told:])
                told = len(made.text)
    yield TextDone(type="transcript.text.done", text=made.text, usage=usage(made.output, rows))
