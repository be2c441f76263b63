"""/v1/chat/completions. Owns how messages become the encoder's input, and what a message and a chunk look like."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from jinja2 import TemplateError

from transduce.errors import RequestError
from transduce.frontend.detokenizer import REPLACEMENT
from transduce.frontend.outputs import CompletionOutput, Logprob
from transduce.server import sse
from transduce.server.answers import Piece, Serving, answers, has_room, head, takes_text, token_text
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
from transduce.server.service import Service
from transduce.server.tokenizer import with_tokenizer

router = APIRouter(tags=["text"], dependencies=[Depends(takes_text), Depends(has_room)])


@router.post("/v1/chat/completions", response_model=Chat, responses=documented("text/event-stream"))
async def chat(body: ChatRequest, http: Request, service: Serving) -> Response:
    """What the model answers to messages."""
    service.check_model(body.model)
    with body.blamed():
        return await _answer(body, http, service)


async def _answer(body: ChatRequest, http: Request, service: Service) -> Response:
    params = body.params()
    prompt = body.pair(await _source(body, service))
    streams = [service.generate(http, prompt, params, stream=body.stream)]
    made = answers(service, params, streams)
    if body.stream:
        about = head("chatcmpl", "chat.completion.chunk", http, service)
        chunks = made.chunks(about, lambda piece: _deltas(piece, body), with_usage=body.include_usage)
        return await sse.respond(chunks)
    about = head("chatcmpl", "chat.completion", http, service)
    pieces = await made.whole()
    choices = [_choice(piece, body) for piece in pieces]
    scored = {"prompt_logprobs": pieces[0].prompt_logprobs}
    return JSONResponse({**about, "choices": choices, "usage": made.usage, **scored})


async def _source(body: ChatRequest, service: Service) -> str | list[int]:
    """The encoder's input: what the chat template makes of the messages, else the one message's text."""
    tokenizer = service.llm.get_tokenizer()
    if tokenizer is not None and tokenizer.chat_template:
        return await with_tokenizer(service, partial(_templated, body), *(each.text for each in body.messages))
    if [message.role for message in body.messages] != ["user"]:
        raise RequestError(
            "messages: the model has no chat template; give exactly one message, of role user, whose content is the "
            "encoder's text"
        )
    return body.messages[0].text


def _templated(body: ChatRequest, tokenizer: Any) -> list[int]:
    turns = [{"role": message.role, "content": message.text} for message in body.messages]
    try:
        ids: list[int] = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    except TemplateError as error:
        raise RequestError(f"messages: the model's chat template refuses them: {error}") from error
    return ids


def _deltas(piece: Piece, body: ChatRequest) -> Iterator[ChatDelta]:
    """What a piece adds to an answer, which begins with its role."""
    if piece.first:
        said = Said(role="assistant", content="")
        yield {"index": piece.index, "delta": said, "logprobs": None, "finish_reason": None, "stop_reason": None}
    yield {"delta": {"content": piece.answer.text}, **_end(piece, body)}


def _choice(piece: Piece, body: ChatRequest) -> ChatChoice:
    message: Said = {"role": "assistant", "content": piece.answer.text, "refusal": None}
    return {"message": message, **_end(piece, body)}


def _end(piece: Piece, body: ChatRequest) -> ChatEnd:
    answer = piece.answer
    return {
        "index": piece.index,
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
