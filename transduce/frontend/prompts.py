"""The forms a prompt may take, brought to one: what the encoder is given, and what the decoder starts from.

    "text"  [1, 2, 3]  {"prompt": …}  {"prompt_token_ids": …}              the encoder's text or ids
    {"multi_modal_data": {"audio": …}, "prompt": the decoder's}  (samples, rate)  bytes  Path    speech models
    "text"  [1, 2, 3]  {"prompt": …, "multi_modal_data": {"image": one or a list}}    models with media in the text
    {"multi_modal_data": {"image": …}, "prompt": the encoder's, beside the image}   Florence-2
    {"encoder_prompt": any of the above, "decoder_prompt": text, ids or None}      either
    {"encoder_prompt": …, "target": text or ids}      a whole answer behind the decoder's prompt, to be scored

Owns the forms and what is said about malformed ones. Knows no tokenizer and no model beyond the media it takes.
"""

import operator
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from transduce.core.checks import shown
from transduce.errors import RequestError

Prompt = str | Sequence[int] | Mapping[str, Any] | bytes | os.PathLike[str] | tuple[Any, int]
"""See the module's forms."""

Target = str | Sequence[int]
"""A whole answer, as text or as token ids."""

Ids = tuple[int, ...]

PAIR = ("encoder_prompt", "decoder_prompt", "target", "cache_salt")
SINGLE = ("prompt", "prompt_token_ids", "multi_modal_data", "cache_salt")


@dataclass(frozen=True, slots=True, eq=False)
class Media:
    """Audio or images as transduce.media takes them, in the order of the prompt. text: the encoder's too."""

    items: tuple[object, ...]
    text: str | Ids = ()


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """source: what the encoder is given. decoder: what the decoder starts from, None for the model's own start.
    target: a whole answer that stands behind it, None for none.
    salt: prompts with different salts share no encoder output, so that none can time another's input.
    """

    source: str | Ids | Media
    decoder: str | Ids | None = None
    target: str | Ids | None = None
    salt: str = ""


def parse(prompt: object, media: str | None, interleaved: bool = False, prompted: bool = False) -> Parts:
    """The parts of a prompt to a model whose encoder takes `media` ("audio"), or text where that is None.

    interleaved: media, any number of them, stand in the decoder's text. prompted: a prompt beside media is the
    encoder's. Raises RequestError, naming the value and the form to use.
    """
    if media is not None and interleaved:
        return _interleaved(prompt, media)
    if isinstance(prompt, Mapping):
        paired = any(key in prompt for key in PAIR[:-1])
        source, decoder = (_pair if paired else _single)(prompt, media, prompted)
        target = _target(prompt["target"]) if "target" in prompt else None
        return Parts(source, decoder, target, _salt(prompt))
    return Parts(_source(prompt, media))


def token_ids(value: object) -> Ids | None:
    """The ids in a list, tuple, array or tensor [tokens] of whole numbers, else None: a set has no order."""
    value = _plain(value)
    if isinstance(value, str | bytes | bytearray | Mapping | Set) or not isinstance(value, Iterable):
        return None
    try:
        values: list[Any] = list(map(_plain, value))
        return None if any(isinstance(each, bool) for each in values) else tuple(map(operator.index, values))
    except TypeError:
        return None


def _plain(value: object) -> object:
    """Arrays, tensors and their elements as Python's lists and numbers."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic | Tensor) else value


def _pair(prompt: Mapping[str, Any], media: str | None, prompted: bool) -> tuple[str | Ids | Media, str | Ids | None]:
    if prompt.get("encoder_prompt") is None:
        kept = [key for key in PAIR[1:-1] if key in prompt]
        raise RequestError(
            f'{_listed(kept) or "a pair"} needs an "encoder_prompt"; give what the encoder reads by that name'
        )
    _check_keys(prompt, PAIR)
    inner, decoder = prompt["encoder_prompt"], _decoder(prompt.get("decoder_prompt"))
    if not isinstance(inner, Mapping):
        return _source(inner, media), decoder
    source, within = _single(inner, media, prompted)
    if isinstance(within, tuple) and not any(within):
        within = None  # zeros hold the place of the media, and say nothing to the decoder
    if within and decoder:
        raise RequestError(
            f"two prompts for the decoder, {shown(within)} and {shown(decoder)}; give only the decoder_prompt"
        )
    return source, decoder or within


def _single(prompt: Mapping[str, Any], media: str | None, prompted: bool) -> tuple[str | Ids | Media, str | Ids | None]:
    _check_keys(prompt, SINGLE)
    given, data, wanted = _given(prompt), prompt.get("multi_modal_data"), media or "text"
    known = () if media is None else (media,)
    if data is not None and not (isinstance(data, Mapping) and all(key in known for key in data)):
        raise RequestError(f"multi_modal_data={shown(data)}: this model's encoder takes {wanted}; {_wanted(media)}")
    if not data if media else given is None:
        raise RequestError(f"{shown(prompt)} has no {wanted}: this model's encoder takes {wanted}; {_wanted(media)}")
    if media is None:
        return _source(given, media), None
    assert data, "checked above"
    item, text = _one(data[media], media), _decoder(given)
    return (Media((item,), text or ()), None) if prompted else (Media((item,)), text)


def _interleaved(prompt: object, media: str) -> Parts:
    if not isinstance(prompt, Mapping):
        return Parts(Media(()), _decoder(prompt))
    if prompt.get("encoder_prompt") is not None:
        return _within(prompt, media)
    _check_keys(prompt, SINGLE)
    data = prompt.get("multi_modal_data") or {}
    if not isinstance(data, Mapping) or any(key != media for key in data):
        raise RequestError(f'multi_modal_data={shown(data)}: give {{"{media}": one, or a list of them}}')
    given = data.get(media)
    items = given if isinstance(given, list | tuple) else () if given is None else (given,)
    return Parts(Media(tuple(items)), _decoder(_given(prompt)), salt=_salt(prompt))


def _within(prompt: Mapping[str, Any], media: str) -> Parts:
    """A pair of which one half is all there is."""
    _check_keys(prompt, ("encoder_prompt", "decoder_prompt", "cache_salt"))
    if prompt.get("decoder_prompt"):
        raise RequestError(
            f"decoder_prompt={shown(prompt['decoder_prompt'])}: this model's text and {media}s are one prompt; "
            "leave it out"
        )
    return replace(_interleaved(prompt["encoder_prompt"], media), salt=_salt(prompt))


def _given(prompt: Mapping[str, Any]) -> object:
    """The text or the ids in a dict, None where it has neither."""
    given = [prompt[key] for key in ("prompt", "prompt_token_ids") if prompt.get(key) is not None]
    if len(given) > 1:
        raise RequestError('a prompt has both "prompt" and "prompt_token_ids"; give one of them')
    return given[0] if given else None


def _one(data: object, media: str) -> object:
    """Media as it is, or the only one in a list."""
    if not isinstance(data, list):
        return data
    if len(data) != 1:
        raise RequestError(f"{media}: a list of {len(data)} in one prompt; give one {_forms(media)}")
    return data[0]


def _wanted(media: str | None) -> str:
    if media is None:
        return 'give {"prompt": text} or {"prompt_token_ids": ids}'
    return f'give {{"multi_modal_data": {{"{media}": {_forms(media)}}}}}'


def _forms(media: str) -> str:
    return f"path, bytes or {'(samples, rate)' if media == 'audio' else 'Pillow image'}"


def _source(value: object, media: str | None) -> str | Ids | Media:
    if media is not None:
        if isinstance(value, str) or value is None:
            raise RequestError(f"{shown(value)} is no {media}, which this model's encoder takes; {_wanted(media)}")
        return Media((value,))
    if isinstance(value, str):
        return value
    ids = token_ids(value)
    if ids is None:
        raise RequestError(f"prompt {shown(value)} of type {type(value).__name__}: give a text or a list of token ids")
    return ids


def _decoder(value: object) -> str | Ids | None:
    if isinstance(value, Mapping):
        _check_keys(value, SINGLE[:2])
        value = _given(value)
    if value is None or isinstance(value, str):
        return value or None
    ids = token_ids(value)
    if ids is None:
        raise RequestError(
            f"decoder prompt {shown(value)} of type {type(value).__name__}: give a text, a list of token ids or None"
        )
    return ids or None


def _salt(prompt: Mapping[str, Any]) -> str:
    """The prompt's own, or that of the one within."""
    salt, inner = prompt.get("cache_salt"), prompt.get("encoder_prompt")
    if salt is not None and not isinstance(salt, str):
        raise RequestError(f"cache_salt={shown(salt)}: give a string")
    return salt or (_salt(inner) if isinstance(inner, Mapping) else "")


def _target(value: object) -> str | Ids:
    """As it is, be it empty: that is no target, and not none."""
    if isinstance(value, str):
        return value
    ids = token_ids(value)
    if ids is None:
        raise RequestError(f"target {shown(value)} of type {type(value).__name__}: give a text or a list of token ids")
    return ids


def _check_keys(prompt: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = [key for key in prompt if key not in known]
    if unknown:
        raise RequestError(f"a prompt has no key {_listed(unknown)}; it may have {_listed(known)}")


def _listed(keys: Iterable[object]) -> str:
    return ", ".join(f'"{key}"' for key in keys)
