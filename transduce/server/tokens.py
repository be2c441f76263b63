"""/tokenize and /detokenize: the checkpoint's tokenizer, without running the model."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from transduce.server.answers import Serving
from transduce.server.errors import documented
from transduce.server.protocol.tokens import DetokenizeRequest, Text, TokenizeRequest, Tokens
from transduce.server.tokenizer import text_of, with_tokenizer

router = APIRouter(tags=["tokens"])


@router.post("/tokenize", response_model=Tokens, responses=documented())
async def tokenize(body: TokenizeRequest, service: Serving) -> Response:
    """The token ids of a text."""
    service.check_model(body.model)
    ids, names = await with_tokenizer(service, partial(_tokens, body), body.prompt)
    longest = service.llm.frontend.max_source
    return JSONResponse(Tokens(count=len(ids), max_model_len=longest, tokens=ids, token_strs=names))


@router.post("/detokenize", response_model=Text, responses=documented())
async def detokenize(body: DetokenizeRequest, service: Serving) -> Response:
    """The text of token ids."""
    service.check_model(body.model)
    return JSONResponse(Text(prompt=await with_tokenizer(service, partial(text_of, body.tokens), body.tokens)))


def _tokens(body: TokenizeRequest, tokenizer: Any) -> tuple[list[int], list[str] | None]:
    ids = tokenizer(body.prompt, add_special_tokens=body.add_special_tokens, verbose=False)["input_ids"]
    return ids, tokenizer.convert_ids_to_tokens(ids) if body.return_token_strs else None
