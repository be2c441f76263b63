"""Chats: messages as OpenAI has them, and the prompt that they make.

Owns the forms of messages and of their parts, where images stand in them, and that URLs become images. What a URL may
lead to is transduce.media.fetch's.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from transduce.config import EngineConfig
from transduce.core.checks import shown
from transduce.errors import MediaError, RequestError
from transduce.frontend.checks import check_count
from transduce.frontend.dialogue import Dialogue, Work, gathered
from transduce.frontend.frontend import Frontend, Params
from transduce.frontend.outputs import RequestOutput
from transduce.frontend.prompts import Prompt
from transduce.frontend.readers import Readers
from transduce.media.addresses import Resolver, resolve
from transduce.media.fetch import FetchPolicy, afetch
from transduce.media.image import load
from transduce.models.base import Processor

IMAGE = "image"
"""The `multi_modal_data` key of images."""

WANTED = 'give {"role": …, "content": a text, or a list of parts}'
PARTS = (
    'give {"type": "text", "text": …}, {"type": "image_url", "image_url": {"url": …}} or {"type": "image", "image": …}'
)


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """An image in a message. place: what messages call it. url: where it is; None: it is here, as `image`, which
    transduce.media.image takes.
    """

    place: str
    url: str | None = None
    image: object = None


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A message. content: a text, or parts of it."""

    role: str
    content: str | tuple[str | Picture, ...]

    @property
    def parts(self) -> tuple[str | Picture, ...]:
        """The content as parts."""
        return (self.content,) if isinstance(self.content, str) else self.content

    @property
    def text(self) -> str:
        """Its texts as one."""
        return "\n".join(part for part in self.parts if isinstance(part, str))

    def templated(self) -> str | list[dict[str, str]]:
        """The content as chat templates take it, which put a token where an image stands."""
        if isinstance(self.content, str):
            return self.content
        return [{"type": "text", "text": part} if isinstance(part, str) else {"type": IMAGE} for part in self.content]


def conversations(messages: Any) -> Sequence[object]:
    """A list of conversations as it is; one conversation as a list of one."""
    several = isinstance(messages, list | tuple) and bool(messages) and not isinstance(messages[0], Mapping)
    return messages if several else [messages]


def parsed(messages: object) -> list[Turn]:
    """One conversation. Raises RequestError for a message or a part of another form."""
    if not isinstance(messages, list | tuple) or not messages:
        raise RequestError(f"messages={shown(messages)}: give a list of messages")
    return [_turn(message, f"messages[{at}]") for at, message in enumerate(messages)]


def _turn(message: object, place: str) -> Turn:
    match message:
        case {"role": str(role), "content": str(text), **rest} if not rest:
            return Turn(role, text)
        case {"role": str(role), "content": [*parts], **rest} if not rest:
            return Turn(role, tuple(_part(part, f"{place}.content[{at}]") for at, part in enumerate(parts)))
        case _:
            raise RequestError(f"{place} {shown(message)}: {WANTED}")


def _part(part: object, place: str) -> str | Picture:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return Picture(f"{place}.image_url", url=url)
        case {"type": "image", "image": image}:
            return Picture(f"{place}.image", image=image)
        case _:
            raise RequestError(f"{place} {shown(part)}: {PARTS}")


def _pictures(turns: Sequence[Turn], frontend: Frontend) -> list[Picture]:
    """All images, in their order. Raises RequestError for images that the model does not take, or too many."""
    found = [part for turn in turns for part in turn.parts if isinstance(part, Picture)]
    media = frontend.processor.media
    if found and media != IMAGE:
        raise RequestError(f"{found[0].place}: this model takes {media or 'text'}, no images; leave it out")
    check_count(IMAGE, len(found), frontend.config)
    return found


def policy(config: EngineConfig) -> FetchPolicy:
    """What URLs may lead to; its size is that of all images of a conversation. Raises ConfigError."""
    folder, domains = config.allowed_local_media_path, config.allowed_media_domains
    return FetchPolicy(
        hosts=frozenset(domains or ()),
        public=domains is None,
        folder=None if folder is None else Path(folder),
        seconds=config.media_timeout,
    )


async def _fetched(found: Sequence[Picture], allowed: FetchPolicy, resolver: Resolver = resolve) -> list[object]:
    """The images, once those that have URLs are fetched, side by side. Raises MediaError, which begins with the place.

    Of the bytes that are allowed each may have its share: all are in memory at once.
    """
    share = replace(allowed, size=max(1, allowed.size // max(1, len(found))))
    return await gathered(_image(each, share, resolver) for each in found)


async def _image(picture: Picture, allowed: FetchPolicy, resolver: Resolver) -> object:
    if picture.url is None:
        return picture.image
    try:
        return await afetch(picture.url, allowed, resolver)
    except MediaError as error:
        raise MediaError(f"{picture.place}: {error}") from error


async def aprompt(turns: Sequence[Turn], frontend: Frontend, allowed: FetchPolicy, resolver: Resolver) -> Prompt:
    """The prompt that messages make, by the checkpoint's chat template where it has one, with images that are fetched.

    Raises RequestError, also where the model takes no such messages, and MediaError.
    """
    images = await _fetched(_pictures(turns, frontend), allowed, resolver)
    readers = frontend.readers
    executor = readers.executor(*(turn.text for turn in turns))
    return await asyncio.get_running_loop().run_in_executor(executor, partial(_prompt, turns, images, readers))


def answered(
    messages: object, params: Params, frontend: Frontend, allowed: FetchPolicy, threads: Executor
) -> Dialogue[RequestOutput]:
    """What a conversation is answered. threads: in which images are fetched."""
    turns = parsed(messages)
    found = _pictures(turns, frontend)
    images = [each.image for each in found]
    if any(each.url is not None for each in found):
        fetching = threads.submit(lambda: asyncio.run(_fetched(found, allowed)))
        yield fetching
        images = fetching.result()
    (output,) = yield [Work(_prompt(turns, images, frontend.readers), params)]
    return output


def said(source: Prompt, output: RequestOutput, frontend: Frontend) -> list[object]:
    """What each answer says, as JSON has it, where the model writes markup about one image; else None.

    source: the prompt that messages made. Takes a moment: the image is read for its size.
    """
    processor = frontend.processor
    if processor.media != IMAGE or processor.interleaved or not isinstance(source, Mapping):
        return [None] * len(output.outputs)
    start, text, size = output.prompt_token_ids, output.encoder_prompt, load(source["multi_modal_data"][IMAGE]).size
    with frontend.lock:
        return [processor.parsed(start, answer.token_ids, text, size) for answer in output.outputs]


def _prompt(turns: Sequence[Turn], images: Sequence[object], readers: Readers) -> Prompt:
    """images: those of the turns, in their order."""
    with readers.alone(*(turn.text for turn in turns)) as processor:
        match processor.media:
            case None:
                return _text(turns, processor)
            case str(media) if media != IMAGE:
                raise RequestError(f"messages: this model takes {media}, no messages; transcribe it")
            case _ if processor.interleaved:
                return {"prompt_token_ids": _ids(turns, processor), "multi_modal_data": {IMAGE: [*images]}}
            case _:
                return _beside(turns, images)


def _text(turns: Sequence[Turn], processor: Processor) -> str | list[int]:
    tokenizer = processor.tokenizer
    if tokenizer is not None and tokenizer.chat_template:
        return _templated([{"role": turn.role, "content": turn.text} for turn in turns], tokenizer)
    return _only(turns, "whose content is the encoder's text").text


def _ids(turns: Sequence[Turn], processor: Processor) -> list[int]:
    tokenizer = processor.tokenizer
    if tokenizer is None or not tokenizer.chat_template:
        raise RequestError("messages: the model has no chat template; put its chat_template.jinja into its folder")
    return _templated([{"role": turn.role, "content": turn.templated()} for turn in turns], tokenizer)


def _beside(turns: Sequence[Turn], images: Sequence[object]) -> dict[str, Any]:
    """One image, and the text as the prompt that goes with it, if there is any."""
    text = _only(turns, "with one image, and a text if it is to have one").text
    if len(images) != 1:
        raise RequestError(f"messages: {len(images)} images; the model takes one, give exactly that")
    return {"multi_modal_data": {IMAGE: images[0]}, **({"prompt": text} if text else {})}


def _only(turns: Sequence[Turn], wanted: str) -> Turn:
    if [turn.role for turn in turns] != ["user"]:
        raise RequestError(
            f"messages: the model has no chat template; give exactly one message, of role user, {wanted}"
        )
    return turns[0]


def _templated(messages: list[dict[str, Any]], tokenizer: Any) -> list[int]:
    try:
        ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    except (TemplateError, TypeError) as error:  # TypeError: one that adds texts where there are parts
        raise RequestError(f"messages: the model's chat template refuses them: {error}") from error
    return ids
