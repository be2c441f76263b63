"""Checks of texts and token ids before anything is made of them: each raises an error that names the way out."""

from collections.abc import Iterable

from transduce.config import MOST_MEDIA, EngineConfig
from transduce.core.checks import shown
from transduce.core.params import BeamSearchParams, GenerationParams, SamplingParams
from transduce.errors import CapacityError, RequestError
from transduce.frontend.generation_config import FILE
from transduce.frontend.prompts import Ids

MOST_PER_TOKEN = 256
"""Characters: a text with more of them for each token that the model takes is refused unread."""


def check_texts(values: Iterable[object]) -> None:
    """Raise for a string among them that is no text: half of a surrogate pair, which no tokenizer takes."""
    for value in values:
        try:
            if isinstance(value, str):
                value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"{shown(value)} holds a lone surrogate, which is no character; remove it") from None


def check_length(name: str, text: str, most: int | None) -> None:
    """Raise for a text that need not be read to know that it is too long for so many tokens."""
    if most is not None and len(text) > (characters := MOST_PER_TOKEN * most):
        raise CapacityError(
            f"the {name} has {len(text)} characters and the model takes {most} tokens, of which each may stand for "
            f"{MOST_PER_TOKEN}: shorten it to {characters} characters at most"
        )


def check_vocabulary(name: str, ids: Ids, size: int) -> None:
    """Raise for an id that is none of `size` tokens."""
    for token in ids:
        if not 0 <= token < size:
            raise RequestError(f"the {name} has token id {token}; this model's go from 0 to {size - 1}")


def check_count(media: str, number: int, config: EngineConfig) -> None:
    """Raise for more images, or the like, than one prompt may have."""
    most = (config.limit_mm_per_prompt or {}).get(media, MOST_MEDIA)
    if number > most:
        raise RequestError(
            f"{media}: {number} in one prompt, and at most {most} may be; give fewer, or raise limit_mm_per_prompt "
            "(--limit-mm-per-prompt)"
        )


def check_width(params: GenerationParams, width: int, most: int) -> None:
    """Raise for more hypotheses than may run at once, under the name of what asks for them."""
    if width > most:
        raise CapacityError(
            f"{_asking(params, width)}={width}: at most max_num_seqs={most} hypotheses run at once; lower it, or raise "
            "max_num_seqs (--max-num-seqs)"
        )


def _asking(params: GenerationParams, width: int) -> str:
    match params:
        case BeamSearchParams(beam_width=int()):
            return "beam_width"
        case SamplingParams(best_of=best) if best == width:
            return "best_of"
        case SamplingParams(n=n) if n == width:
            return "n"
        case _:
            return f"{FILE} has num_beams"
