"""Resolving what a request asks against what its checkpoint asks: how tokens are drawn, when to stop, which rules hold.

An unset parameter takes generation_config.json's value. Owns the precedence and the order of the rules; what a rule
does is in `transduce.rules`. Knows no prompt beyond its length.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from transduce.core.params import BeamSearchParams, GenerationParams, SamplingParams
from transduce.core.request import Beams, RuleSpec, Sampling, Stopping
from transduce.errors import ConfigError, RequestError
from transduce.frontend.generation_config import FILE, Defaults

GENERATE_TOP_K = 50
"""What generate() samples from where a checkpoint turns sampling on and nobody says from how many tokens."""

T = TypeVar("T")

Words = Callable[[str], Sequence[tuple[int, ...]]]
"""A word to the token sequences that spell it, one for each way it may begin."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How one request decodes: the parts of a Request that its parameters decide, and the strings that stop it."""

    width: int
    beams: Beams | None
    sampling: Sampling | None
    stopping: Stopping
    rules: tuple[RuleSpec, ...]
    stop_strings: tuple[str, ...]


class Resolver:
    """Resolves parameters for one checkpoint.

    vocab_size: width of the logits. seed: what seeds are drawn from for requests without one. words: see Words.
    Raises ConfigError where the checkpoint asks for tokens outside the vocabulary.
    """

    def __init__(self, defaults: Defaults, vocab_size: int, seed: int, words: Words) -> None:
        self.defaults = defaults
        self._vocab_size = vocab_size
        self._seeds = random.Random(seed)
        self._words = words
        self._check_defaults()

    def width(self, params: GenerationParams) -> int:
        """Hypotheses that a request has at once: n samples or, if nobody asks for samples, beams."""
        if isinstance(params, BeamSearchParams):
            return _resolved(params.beam_width, self.defaults.num_beams, 1)
        return _samples(params) if self._samples_alone(params) else self.defaults.num_beams

    def answers(self, params: GenerationParams) -> int:
        """Answers that a request gives. Raises RequestError as `resolve` does."""
        beams = self._beams(params)
        return self.width(params) if beams is None else beams.answers

    def resolve(self, params: GenerationParams, prompt: int, room: int, most: int | None) -> Decoding:
        """How a request with `prompt` decoder tokens decodes.

        room: new tokens where nobody says how many. most: what the model's positions allow, None: any number.

        Sampling: temperature 0 is greedy. Unset, it is greedy unless the checkpoint says do_sample or n > 1. Where
        do_sample decides, an unset top_k is generate()'s 50; where the user does, only what the checkpoint's
        generation_config.json names itself.

        Raises RequestError for what contradicts itself or is not available.
        """
        self._check_ids(params)
        max_tokens = self._max_tokens(params, prompt, room, most)
        eos = frozenset() if params.ignore_eos else frozenset(self.defaults.eos)
        stopping = Stopping(max_tokens, eos, frozenset(params.stop_token_ids or ()))
        beams = self._beams(params)
        return Decoding(
            width=self.width(params),
            beams=beams,
            sampling=self._sampling(params, 1 if beams is None else max(2, 1 + len(stopping.ends))),
            stopping=stopping,
            rules=tuple(self._rules(params, prompt, prompt + max_tokens)),
            stop_strings=self.defaults.stop_strings if params.stop is None else params.stop_strings,
        )

    def _beams(self, params: GenerationParams) -> Beams | None:
        width, d = self.width(params), self.defaults
        asked = params if isinstance(params, BeamSearchParams) else BeamSearchParams(beam_width=width)
        answers = _resolved(asked.num_return_sequences, min(width, d.num_return_sequences), 1)
        if answers > width:
            raise RequestError(f"num_return_sequences={answers}: at most as many as beams, and beam_width={width}")
        if width == 1 or self._samples_alone(params):
            return None
        for name, value in d.missing_with_beams:
            raise _missing(name, value, "beam_width=1 decodes greedily")
        return Beams(
            _resolved(asked.length_penalty, d.length_penalty, 1.0),
            _resolved(asked.early_stopping, d.early_stopping, False),
            answers,
        )

    def _samples_alone(self, params: GenerationParams) -> bool:
        """Whether the request asks for samples that are no beams."""
        return isinstance(params, SamplingParams) and (params.n > 1 or bool(params.temperature))

    def _check_defaults(self) -> None:
        d = self.defaults
        single = [token for token in (d.decoder_start_token_id, d.forced_bos) if token is not None]
        words = [token for word in d.bad_words for token in word]
        unknown = self._unknown([*single, *d.forced_eos, *d.eos, *words, *d.languages.values()])
        if unknown is not None:
            raise ConfigError(f"{FILE} names token id {unknown}; the model's go from 0 to {self._vocab_size - 1}")

    def _check_ids(self, params: GenerationParams) -> None:
        words = [word for word in params.bad_words or () if not isinstance(word, str)]
        named: Mapping[str, Iterable[int]] = {
            "stop_token_ids": params.stop_token_ids or (),
            "logit_bias": params.logit_bias or (),
            "allowed_token_ids": params.allowed_token_ids or (),
            "bad_words": [token for word in words for token in word],
        }
        for name, ids in named.items():
            unknown = self._unknown(ids)
            if unknown is not None:
                raise RequestError(f"{name} has token id {unknown}; ids go from 0 to {self._vocab_size - 1}")

    def _unknown(self, ids: Iterable[int]) -> int | None:
        return next((token for token in ids if not 0 <= token < self._vocab_size), None)

    def _sampling(self, params: GenerationParams, keep: int) -> Sampling | None:
        temperature, top_k = self._temperature(params), _given(params.top_k, self.defaults.top_k)
        if temperature == 0:
            self._refuse_idle(params)
            return None
        for name, value in self.defaults.missing_when_sampling:
            raise _missing(name, value, "temperature=0 does not sample")
        if top_k is None:
            top_k = GENERATE_TOP_K if self.defaults.do_sample and params.temperature is None else 0
        return Sampling(
            temperature=temperature,
            top_k=max(0, top_k),
            top_p=_resolved(params.top_p, self.defaults.top_p, 1.0),
            min_p=_resolved(params.min_p, self.defaults.min_p, 0.0),
            seed=self._seeds.getrandbits(63) if params.seed is None else params.seed,
            keep=keep,
        )

    def _temperature(self, params: GenerationParams) -> float:
        if params.temperature is not None:
            return params.temperature
        if self.defaults.do_sample or _samples(params) > 1:
            return 1.0 if self.defaults.temperature is None else self.defaults.temperature
        return 0.0

    def _refuse_idle(self, params: GenerationParams) -> None:
        """Raise for parameters that matter to samples alone, unless temperature=0 says that there are none."""
        if (n := _samples(params)) > 1:
            raise RequestError(
                f"n={n} with temperature=0: greedy decoding has one answer; give temperature > 0, or n=1"
            )
        shapes = {"top_p": (params.top_p, 1.0), "top_k": (params.top_k, 0, -1, 1), "min_p": (params.min_p, 0.0)}
        for name, (value, *neutral) in shapes.items():
            if params.temperature is None and value is not None and value not in neutral:
                raise RequestError(
                    f"{name}={value!r} without a temperature: this checkpoint does not sample by default; "
                    "give temperature > 0 to sample"
                )

    def _max_tokens(self, params: GenerationParams, prompt: int, room: int, most: int | None) -> int:
        length = self.defaults.max_length
        wanted = _given(params.max_tokens, self.defaults.max_new_tokens)
        if wanted is None and length is not None:
            wanted = length - prompt
            if wanted < 1:
                raise RequestError(
                    f"the decoder prompt has {prompt} tokens and {FILE} has max_length={length}; set max_tokens"
                )
        wanted = room if wanted is None else wanted
        return wanted if most is None else min(wanted, most)

    def _rules(self, params: GenerationParams, prompt: int, length: int) -> Iterator[RuleSpec]:
        """In the order of their ranks. `length`: decoder tokens, prompt included, at the most."""
        d = self.defaults
        if params.logit_bias:
            yield RuleSpec("logit_bias", (tuple(sorted(params.logit_bias.items())),))
        penalty = _resolved(params.repetition_penalty, d.repetition_penalty, 1.0)
        if penalty != 1.0:
            yield RuleSpec("repetition_penalty", (penalty,))
        if params.frequency_penalty:
            yield RuleSpec("frequency_penalty", (params.frequency_penalty, prompt))
        if params.presence_penalty:
            yield RuleSpec("presence_penalty", (params.presence_penalty, prompt))
        if d.no_repeat_ngram_size:
            yield RuleSpec("no_repeat_ngram", (d.no_repeat_ngram_size,))
        yield from self._forbidden(params, prompt)
        yield from self._forced(prompt, None if params.guided else length)

    def _forbidden(self, params: GenerationParams, prompt: int) -> Iterator[RuleSpec]:
        words = self.defaults.bad_words + tuple(self._spelled(params.bad_words or ()))
        if words:
            yield RuleSpec("bad_words", (words, self.defaults.eos))
        least, ends = self._least(params, prompt)
        if least > prompt and ends:
            yield RuleSpec("min_tokens", (least, ends))
        if params.allowed_token_ids is not None:
            yield RuleSpec("allowed_tokens", (tuple(params.allowed_token_ids),))

    def _forced(self, prompt: int, length: int | None) -> Iterator[RuleSpec]:
        """`length`: None where no EOS is forced: it would cut a structure, and say that it is whole."""
        d = self.defaults
        if d.forced_bos is not None:
            yield RuleSpec("forced_bos", (d.forced_bos,))
        if d.forced_eos and length is not None:
            yield RuleSpec("forced_eos", (length, d.forced_eos))
        if d.suppress_tokens:
            yield RuleSpec("suppress_tokens", (d.suppress_tokens,))
        if d.begin_suppress_tokens:
            begin = prompt + (prompt == 1 and d.forced_bos is not None)
            yield RuleSpec("begin_suppress_tokens", (begin, d.begin_suppress_tokens))

    def _least(self, params: GenerationParams, prompt: int) -> tuple[int, tuple[int, ...]]:
        """Decoder tokens, prompt included, at the least; and the tokens that may not end the text before."""
        if params.min_tokens is not None:
            return prompt + params.min_tokens, (*self.defaults.eos, *(params.stop_token_ids or ()))
        if self.defaults.min_new_tokens is not None:
            return prompt + self.defaults.min_new_tokens, self.defaults.eos
        return self.defaults.min_length or 0, self.defaults.eos

    def _spelled(self, words: Sequence[str | Sequence[int]]) -> Iterator[tuple[int, ...]]:
        for word in words:
            yield from self._spellings(word) if isinstance(word, str) else [tuple(word)]

    def _spellings(self, word: str) -> list[tuple[int, ...]]:
        """Those that can be generated: a tokenizer may have tokens that the model's logits lack."""
        spellings = self._words(word)
        if not spellings:
            raise RequestError(f"bad_words has {word!r}, which the tokenizer drops; give text, or lists of token ids")
        return [ids for ids in spellings if self._unknown(ids) is None]


def _samples(params: GenerationParams) -> int:
    return params.n if isinstance(params, SamplingParams) else 1


def _missing(name: str, value: object, otherwise: str) -> RequestError:
    return RequestError(
        f"{FILE} asks for {name}={value!r}, which is not available yet; {otherwise}, removing the field does without it"
    )


def _given(user: T | None, checkpoint: T | None) -> T | None:
    return checkpoint if user is None else user


def _resolved(user: T | None, checkpoint: T | None, neutral: T) -> T:
    given = _given(user, checkpoint)
    return neutral if given is None else given
