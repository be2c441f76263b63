"""/v1/completions. Owns what a choice and a chunk look like; what they hold comes from `answers`."""

from collections.abc import Mapping, Sequence
from functools import partial

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from transduce.frontend.outputs import Logprob
from transduce.server import sse
from transduce.server.answers import Piece, Serving, answers, has_room, head, takes_text, token_text
from transduce.server.errors import documented
from transduce.server.protocol.completions import Completion, CompletionChoice, CompletionLogprobs, CompletionRequest
from transduce.server.service import Service
from transduce.server.tokenizer import text_of, with_tokenizer

router = APIRouter(tags=["text"], dependencies=[Depends(takes_text), Depends(has_room)])


@router.post("/v1/completions", response_model=Completion, responses=documented("text/event-stream"))
async def complete(body: CompletionRequest, http: Request, service: Serving) -> Response:
    """What the model makes of a prompt, or of each of several."""
    service.check_model(body.model)
    with body.blamed():
        return await _answer(body, http, service)


async def _answer(body: CompletionRequest, http: Request, service: Service) -> Response:
    params = body.params()
    echoes = [await _echo(source, body, service) if body.echo else "" for source in body.sources]
    asked = partial(service.generate, http, params=params, priority=body.priority, stream=body.stream)
    streams = [asked(body.pair(source)) for source in body.sources]
    made = answers(service, params, streams)
    about = head("cmpl", "text_completion", http, service)
    if body.stream:
        chunks = made.chunks(about, lambda piece: [_choice(piece, body, echoes)], with_usage=body.include_usage)
        return await sse.respond(chunks)
    choices = [_choice(piece, body, echoes) for piece in await made.whole()]
    return JSONResponse({**about, "choices": choices, "usage": made.usage})


async def _echo(source: str | list[int], body: CompletionRequest, service: Service) -> str:
    """All that was there before the answer: the encoder's text, and what the decoder started from."""
    return await _text(source, service) + await _text(body.decoder_prompt or "", service)


async def _text(given: str | list[int], service: Service) -> str:
    if isinstance(given, str):
        return given
    return await with_tokenizer(service, partial(text_of, given, skip_special_tokens=True), given)


def _choice(piece: Piece, body: CompletionRequest, echoes: Sequence[str]) -> CompletionChoice:
    answer, echo = piece.answer, echoes[piece.prompt] if piece.first else ""
    return {
        "index": piece.index,
        "text": echo + answer.text,
        "logprobs": None if answer.logprobs is None else _logprobs(piece, body),
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
        "prompt_logprobs": piece.prompt_logprobs,
    }


def _logprobs(piece: Piece, body: CompletionRequest) -> CompletionLogprobs:
    """By token. Two of the likeliest with the same text are told as the likelier one."""
    as_id = body.return_tokens_as_token_ids
    offset = piece.offset
    made = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
    for token, table in zip(piece.answer.token_ids, piece.answer.logprobs or (), strict=True):
        made["tokens"].append(token_text(token, table[token], as_id=as_id))
        made["token_logprobs"].append(table[token].logprob)
        made["top_logprobs"].append(_likeliest(table, as_id))
        made["text_offset"].append(offset)
        offset += len(token_text(token, table[token]))
    return made


def _likeliest(table: Mapping[int, Logprob], as_id: bool) -> dict[str, float]:
    made: dict[str, float] = {}
    for token, each in table.items():
        made.setdefault(token_text(token, each, as_id=as_id), each.logprob)
    return made
