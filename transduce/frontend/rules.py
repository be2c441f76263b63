"""Which logits rules a request obeys: the checkpoint's, with the request's in their place or beside them.

Owns the precedence of the two, which field asks for which rule, and the order of the rules; what a rule does is in
`transduce.rules`. Knows no tokenizer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from transduce.core.checks import NO_TOKEN
from transduce.core.params import GenerationParams
from transduce.core.request import RuleSpec
from transduce.errors import RequestError
from transduce.frontend.generation_config import Defaults

T = TypeVar("T")

Word = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What rules have to know of a request besides its parameters.

    prompt: decoder tokens that it starts from. length: decoder tokens at the most, these included. source: the
    encoder's token ids, None where it reads no tokens. best: whether it is beams of which the best go on.
    """

    prompt: int
    length: int
    source: tuple[int, ...] | None = None
    best: bool = False


def given(asked: T | None, checkpoint: T | None) -> T | None:
    """What a request asks for, or what its checkpoint does where it says nothing."""
    return checkpoint if asked is None else asked


def resolved(asked: T | None, checkpoint: T | None, neutral: T) -> T:
    """As `given`, and `neutral` where neither says anything."""
    value = given(asked, checkpoint)
    return neutral if value is None else value


def overridden(defaults: Defaults, params: GenerationParams) -> Defaults:
    """What the checkpoint asks for, but for what the request says instead."""
    bos = given(params.forced_bos_token_id, defaults.forced_bos)
    return replace(
        defaults,
        repetition_penalty=given(params.repetition_penalty, defaults.repetition_penalty),
        no_repeat_ngram_size=given(params.no_repeat_ngram_size, defaults.no_repeat_ngram_size),
        encoder_no_repeat_ngram_size=given(params.encoder_no_repeat_ngram_size, defaults.encoder_no_repeat_ngram_size),
        bad_words=() if params.bad_words is not None and not params.bad_words else defaults.bad_words,
        forced_bos=None if bos == NO_TOKEN else bos,
        forced_eos=resolved(params.forced_eos, defaults.forced_eos, ()),
        suppress_tokens=tuple(resolved(params.suppress_tokens, defaults.suppress_tokens, ())),
        begin_suppress_tokens=tuple(resolved(params.begin_suppress_tokens, defaults.begin_suppress_tokens, ())),
        renormalize_logits=resolved(params.renormalize_logits, defaults.renormalize_logits, False),
    )


def rules(params: GenerationParams, asked: Defaults, words: Sequence[Word], answer: Answer) -> Iterator[RuleSpec]:
    """The rules, in the order of their ranks.

    asked: as `overridden` has it. words: the request's bad words. Raises RequestError for a rule that cannot hold.
    """
    yield from _penalties(params, asked, answer)
    yield from _repeats(params, asked, answer)
    yield from _forbidden(params, asked, words, answer)
    # A forced end would cut a structure, and say that it is whole.
    yield from _forced(asked if params.guided is None else replace(asked, forced_eos=()), answer)
    if asked.renormalize_logits and answer.best:
        yield RuleSpec("renormalize")


def _penalties(params: GenerationParams, asked: Defaults, answer: Answer) -> Iterator[RuleSpec]:
    if params.logit_bias:
        yield RuleSpec("logit_bias", (tuple(sorted(params.logit_bias.items())),))
    if asked.repetition_penalty not in (None, 1.0):
        yield RuleSpec("repetition_penalty", (asked.repetition_penalty,))
    if params.frequency_penalty:
        yield RuleSpec("frequency_penalty", (params.frequency_penalty, answer.prompt))
    if params.presence_penalty:
        yield RuleSpec("presence_penalty", (params.presence_penalty, answer.prompt))


def _repeats(params: GenerationParams, asked: Defaults, answer: Answer) -> Iterator[RuleSpec]:
    if asked.no_repeat_ngram_size:
        yield RuleSpec("no_repeat_ngram", (asked.no_repeat_ngram_size,))
    if asked.encoder_no_repeat_ngram_size and answer.source is not None:
        yield RuleSpec("encoder_no_repeat_ngram", (asked.encoder_no_repeat_ngram_size, answer.source))
    elif params.encoder_no_repeat_ngram_size:
        raise RequestError(
            f"encoder_no_repeat_ngram_size={params.encoder_no_repeat_ngram_size}: this model's encoder reads no tokens "
            "that an answer could repeat; leave it out"
        )


def _forbidden(params: GenerationParams, asked: Defaults, words: Sequence[Word], answer: Answer) -> Iterator[RuleSpec]:
    if words or asked.bad_words:
        yield RuleSpec("bad_words", ((*asked.bad_words, *words), asked.eos))
    least, ends = _least(params, asked, answer.prompt)
    if least > answer.prompt and ends:
        yield RuleSpec("min_tokens", (least, ends))
    if params.allowed_token_ids is not None:
        yield RuleSpec("allowed_tokens", (tuple(params.allowed_token_ids),))


def _least(params: GenerationParams, asked: Defaults, prompt: int) -> tuple[int, tuple[int, ...]]:
    """Decoder tokens, prompt included, at the least; and the tokens that may not end the text before."""
    if params.min_tokens is not None:
        return prompt + params.min_tokens, (*asked.eos, *(params.stop_token_ids or ()))
    if asked.min_new_tokens is not None:
        return prompt + asked.min_new_tokens, asked.eos
    return asked.min_length or 0, asked.eos


def _forced(asked: Defaults, answer: Answer) -> Iterator[RuleSpec]:
    bos = asked.forced_bos if answer.prompt == 1 else None
    if bos is not None:
        yield RuleSpec("forced_bos", (bos,))
    if asked.forced_eos:
        yield RuleSpec("forced_eos", (answer.length, asked.forced_eos))
    if asked.suppress_tokens:
        yield RuleSpec("suppress_tokens", (asked.suppress_tokens,))
    if asked.begin_suppress_tokens:
        yield RuleSpec("begin_suppress_tokens", (answer.prompt + (bos is not None), asked.begin_suppress_tokens))
