"""/tokenize and /detokenize, in vLLM's form."""

from pydantic import Field
from typing_extensions import TypedDict

from transduce.server.protocol.base import Body, Characters, TokenIds


class TokenizeRequest(Body):
    """Text as the encoder reads it."""

    model: str | None = Field(None, description="A served model's name; left out, the one there is.")
    prompt: Characters
    add_special_tokens: bool = Field(
        True, description="Add what the encoder's input has besides its text, such as EOS."
    )
    return_token_strs: bool = Field(False, description="Give the tokens as the vocabulary spells them, too.")


class Tokens(TypedDict):
    """Token ids. max_model_len: the encoder's longest input; null: no limit."""

    count: int
    max_model_len: int | None
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeRequest(Body):
    """Token ids of the decoder's vocabulary."""

    model: str | None = Field(None, description="A served model's name; left out, the one there is.")
    tokens: TokenIds


class Text(TypedDict):
    """The text of token ids, special tokens included."""

    prompt: str
