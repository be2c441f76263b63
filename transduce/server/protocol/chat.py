"""/v1/chat/completions: messages in, a message back."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from transduce.errors import RequestError
from transduce.frontend.chat import Picture, Turn
from transduce.server.errors import FieldError
from transduce.server.protocol.base import FIRST, Body, Characters, Neutral, Usage, described
from transduce.server.protocol.prompt_logprobs import PromptLogprobs
from transduce.server.protocol.sampling import MOST_LOGPROBS, Generating

MOST_TURNS = 2_048
"""Messages and their parts."""

CONTENT = 'a text, or a list of {"type": "text", "text": …} and {"type": "image_url", "image_url": {"url": …}}'


class TextPart(Body):
    """A piece of a message's text."""

    type: Literal["text"]
    text: Characters


class ImageURL(Body):
    """Where an image is. detail: how much of it matters, which the model's own preprocessor decides."""

    url: Characters = Field(description="https:, http: or data:, and file: where the server allows it.")
    detail: Literal["auto", "low", "high"] = Field("auto", description="Accepted, without an effect.")


class ImagePart(Body):
    """An image, where it stands in the message."""

    type: Literal["image_url"]
    image_url: ImageURL


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(Body):
    """A turn of the conversation: a text, or parts. Texts are joined by line breaks, but for models that see images."""

    role: Characters
    content: Annotated[Characters | Annotated[list[Part], FIRST], described(CONTENT)]

    def turn(self, place: str) -> Turn:
        """The same for the frontend. place: what errors call it."""
        if isinstance(self.content, str):
            return Turn(self.role, self.content)
        return Turn(
            self.role,
            tuple(
                part.text
                if isinstance(part, TextPart)
                else Picture(f"{place}.content[{at}].image_url", part.image_url.url)
                for at, part in enumerate(self.content)
            ),
        )


def _counted(messages: Any) -> Any:
    """Refuse too many messages and parts before any is looked at."""
    if isinstance(messages, list):
        contents = [message.get("content") for message in messages if isinstance(message, dict)]
        count = len(messages) + sum(len(content) for content in contents if isinstance(content, list))
        if count > MOST_TURNS:
            most = f"{MOST_TURNS:,}"
            raise PydanticCustomError("too_many", "give at most {most} messages and parts", {"most": most})
    return messages


class ChatRequest(Generating):
    """Messages become a prompt: by the checkpoint's chat template, else a single user message as it is."""

    unread: ClassVar[tuple[str, ...]] = (
        *Generating.unread,
        "parallel_tool_calls",
        "prompt_cache_options",
        "prompt_cache_retention",
    )
    neutral: ClassVar[Neutral] = {
        **Generating.neutral,
        "add_generation_prompt": (True,),
        "audio": (),
        "chat_template": (),
        "chat_template_kwargs": ({},),
        "continue_final_message": (False,),
        "documents": ([],),
        "echo": (False,),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "modalities": (["text"],),
        "prediction": (),
        "reasoning_effort": ("none",),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "verbosity": ("medium",),
        "web_search_options": (),
    }

    words: ClassVar[Mapping[str, str]] = {**Generating.words, "prompt": "messages", "image": "messages"}

    messages: Annotated[Annotated[list[Message], FIRST], BeforeValidator(_counted)] = Field(min_length=1)
    logprobs: bool = Field(False, description="Report each token's log-probability.")
    top_logprobs: int | None = Field(
        None, ge=0, le=MOST_LOGPROBS, description="With logprobs: and so many of the likeliest tokens'."
    )
    max_completion_tokens: int | None = Field(None, ge=1, description="The same as max_tokens.")

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            message = f"top_logprobs={self.top_logprobs} without logprobs; give logprobs: true"
            raise FieldError(message, "top_logprobs", RequestError)
        if self.max_completion_tokens and self.max_tokens not in (None, self.max_completion_tokens):
            message = "max_tokens and max_completion_tokens differ; give one of them"
            raise FieldError(message, "max_completion_tokens", RequestError)
        return self

    @property
    def turns(self) -> list[Turn]:
        """The messages for the frontend."""
        return [message.turn(f"messages[{at}]") for at, message in enumerate(self.messages)]

    @property
    def renamed(self) -> Mapping[str, str]:
        theirs = {} if self.max_completion_tokens is None else {"max_tokens": "max_completion_tokens"}
        return {**super().renamed, **theirs}

    def given(self) -> dict[str, Any]:
        given = super().given()
        given.pop("logprobs", None)
        if self.logprobs:
            given["logprobs"] = self.top_logprobs or 0
        if self.max_completion_tokens is not None:
            given["max_tokens"] = self.max_completion_tokens
        return given


class TokenLogprob(TypedDict):
    """A token's log-probability. bytes: of its text; null where that is no whole character."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChosenLogprob(TokenLogprob):
    """A token of the answer, and the likeliest ones in its place."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(TypedDict):
    """By token of the answer."""

    content: list[ChosenLogprob]
    refusal: None


class Said(TypedDict):
    """The answer as a message; or, in a stream, what a chunk adds to it. parsed: what it says, as JSON has it, of
    models that write markup about an image; not in a stream.
    """

    role: NotRequired[str]
    content: NotRequired[str]
    refusal: NotRequired[None]
    parsed: NotRequired[object]


class ChatEnd(TypedDict):
    """What a choice has besides its text. stop_reason: as in completions."""

    index: int
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None


class ChatChoice(ChatEnd):
    """One answer."""

    message: Said


class ChatDelta(ChatEnd):
    """What a chunk adds to an answer."""

    delta: Said


class Chat(TypedDict):
    """The answers. prompt_logprobs: of the decoder's prompt, as vLLM has them."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | None
