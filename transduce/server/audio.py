"""/v1/audio/transcriptions and /translations: a recording in a form, its text back, whole or as it comes."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from transduce.server import sse
from transduce.server.answers import Serving
from transduce.server.errors import NotServed, documented
from transduce.server.protocol.audio import (
    AudioLength,
    AudioRequest,
    TextDelta,
    TextDone,
    Transcript,
    VerboseTranscript,
    usage,
)
from transduce.server.service import Service
from transduce.speech import subtitles
from transduce.speech.transcription import Transcription

SRT, VTT = "application/x-subrip", "text/vtt"


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

FORMS = documented("text/plain", "text/event-stream", SRT, VTT)


@router.post("/v1/audio/transcriptions", response_model=Transcript | VerboseTranscript, responses=FORMS)
async def transcribe(body: Asked, http: Request, service: Serving) -> Response:
    """What is said in a recording."""
    return await _answer(body, http, service, "transcribe")


@router.post(
    "/v1/audio/translations",
    response_model=Transcript | VerboseTranscript,
    responses=FORMS,
    dependencies=[Depends(translates)],
)
async def translate(body: Asked, http: Request, service: Serving) -> Response:
    """What is said in a recording, in English."""
    return await _answer(body, http, service, "translate")


async def _answer(body: AudioRequest, http: Request, service: Service, task: str) -> Response:
    service.check_model(body.model)
    with body.blamed():
        return await _heard(body, http, service, task)


async def _heard(body: AudioRequest, http: Request, service: Service, task: str) -> Response:
    layout, asked, clip = body.layout(), body.hearing(), await body.file.read()
    timestamps = body.timed and await asyncio.to_thread(service.stamps)
    heard = service.transcribe(http, clip, stream=body.stream, task=task, timestamps=timestamps, **asked)
    if body.stream:
        return await sse.respond(_events(heard))
    async with aclosing(heard):
        return _written(await anext(heard), body, layout, task)


def _written(made: Transcription, body: AudioRequest, layout: subtitles.Layout, task: str) -> Response:
    """A transcription in the form that is asked for."""
    match body.response_format:
        case "srt":
            return Response(subtitles.srt(made.segments, layout), media_type=SRT)
        case "vtt":
            return Response(subtitles.vtt(made.segments, layout), media_type=VTT)
        case "verbose_json":
            return JSONResponse(_verbose(made, task, body.timestamp_granularities))
        case "text":
            return PlainTextResponse(made.text + "\n")
        case _:
            return JSONResponse(Transcript(text=made.text, usage=usage(made.output)))


def _verbose(made: Transcription, task: str, granularities: Collection[str]) -> dict[str, Any]:
    """A VerboseTranscript."""
    return {
        **subtitles.verbose(
            made.segments, task=task, language=made.language, duration=made.duration, granularities=granularities
        ),
        "language_probability": made.language_probability,
        "usage": AudioLength(type="duration", seconds=made.duration),
    }


async def _events(heard: AsyncGenerator[Transcription, None]) -> sse.Events:
    told = 0
    async with aclosing(heard):
        async for made in heard:
            if len(made.text) > told:
                yield TextDelta(type="transcript.text.delta", delta=made.text[told:])
                told = len(made.text)
    yield TextDone(type="transcript.text.done", text=made.text, usage=usage(made.output))
