"""/v1/chat/completions. Owns what a message and a chunk look like; what messages make is transduce.frontend.chat's."""

import asyncio
from collections.abc import Iterator, Mapping

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from transduce.frontend.chat import said
from transduce.frontend.detokenizer import REPLACEMENT
from transduce.frontend.outputs import CompletionOutput, Logprob
from transduce.server import sse
from transduce.server.answers import Piece, Serving, answers, has_room, head, takes_messages, token_text
from transduce.server.errors import documented
from transduce.server.protocol.chat import (
    Chat,
    ChatChoice,
    ChatDelta,
    ChatEnd,
    ChatLogprobs,
    ChatRequest,
    ChosenLogprob,
    Said,
    TokenLogprob,
)
from transduce.server.protocol.prompt_logprobs import prompt_logprobs
from transduce.server.service import Service

router = APIRouter(tags=["text"], dependencies=[Depends(takes_messages), Depends(has_room)])


@router.post("/v1/chat/completions", response_model=Chat, responses=documented("text/event-stream"))
async def chat(body: ChatRequest, http: Request, service: Serving) -> Response:
    """What the model answers to messages."""
    service.check_model(body.model)
    with body.blamed():
        return await _answer(body, http, service)


async def _answer(body: ChatRequest, http: Request, service: Service) -> Response:
    params = body.params()
    source = await service.prompt(http, body.turns, body.priority)
    streams = [service.generate(http, body.pair(source), params, priority=body.priority, stream=body.stream)]
    made = answers(service, params, streams)
    if body.stream:
        about = head("chatcmpl", "chat.completion.chunk", http, service)
        chunks = made.chunks(about, lambda piece: _deltas(piece, body), with_usage=body.include_usage)
        return await sse.respond(chunks)
    about = head("chatcmpl", "chat.completion", http, service)
    (output,) = await made.outputs()
    parsed = await asyncio.to_thread(said, source, output, service.llm.frontend)
    choices = [_choice(*each, body) for each in zip(output.outputs, parsed, strict=True)]
    scored = {"prompt_logprobs": prompt_logprobs(output)}
    return JSONResponse({**about, "choices": choices, "usage": made.usage, **scored})


def _deltas(piece: Piece, body: ChatRequest) -> Iterator[ChatDelta]:
    """What a piece adds to an answer, which begins with its role."""
    if piece.first:
        begun = Said(role="assistant", content="")
        yield {"index": piece.index, "delta": begun, "logprobs": None, "finish_reason": None, "stop_reason": None}
    yield {"delta": {"content": piece.answer.text}, **_end(piece.index, piece.answer, body)}


def _choice(answer: CompletionOutput, parsed: object, body: ChatRequest) -> ChatChoice:
    message: Said = {"role": "assistant", "content": answer.text, "refusal": None}
    if parsed is not None:
        message["parsed"] = parsed
    return {"message": message, **_end(answer.index, answer, body)}


def _end(index: int, answer: CompletionOutput, body: ChatRequest) -> ChatEnd:
    return {
        "index": index,
        "logprobs": None if answer.logprobs is None else _logprobs(answer, body.return_tokens_as_token_ids),
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
    }


def _logprobs(answer: CompletionOutput, as_id: bool) -> ChatLogprobs:
    tables = zip(answer.token_ids, answer.logprobs or (), strict=True)
    return {"content": [_chosen(token, table, as_id) for token, table in tables], "refusal": None}


def _chosen(token: int, table: Mapping[int, Logprob], as_id: bool) -> ChosenLogprob:
    likeliest = [_logprob(each, value, as_id) for each, value in table.items() if value.rank is not None]
    return {**_logprob(token, table[token], as_id), "top_logprobs": likeliest}


def _logprob(token: int, value: Logprob, as_id: bool) -> TokenLogprob:
    text = token_text(token, value, as_id=as_id)
    whole = REPLACEMENT not in text
    return TokenLogprob(token=text, logprob=value.logprob, bytes=list(text.encode()) if whole else None)
