"""Resolving what a request asks against what its checkpoint asks: how tokens are drawn, and when to stop.

An unset parameter takes generation_config.json's value. Owns what contradicts itself, and the checks on token ids;
which rules hold is said in `transduce.frontend.rules`. Knows no prompt beyond its tokens.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from transduce.core.checks import NO_TOKEN
from transduce.core.params import BeamSearchParams, GenerationParams, SamplingParams
from transduce.core.request import Beams, RuleSpec, Sampling, Scored, Stopping
from transduce.errors import ConfigError, RequestError
from transduce.frontend.generation_config import FILE, Defaults
from transduce.frontend.rules import Answer, given, overridden, resolved, rules

NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "early_stopping": (False,),
    "length_penalty": (1.0, 0.0),
    "patience": (1.0,),
}
"""What matters to beams alone, and the values that ask for nothing."""

GENERATE_TOP_K = 50
"""What generate() samples from where a checkpoint turns sampling on and nobody says from how many tokens."""

Words = Callable[[str], Sequence[tuple[int, ...]]]
"""A word to the token sequences that spell it, one for each way it may begin."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How one request decodes: the parts of a Request that its parameters decide, and the strings that stop it."""

    width: int
    beams: Beams | None
    sampling: Sampling | None
    logprobs: int | None
    scored: Scored | None
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
        """Hypotheses that a request has at once: n samples or, if nobody asks for samples, beams. 1 without tokens."""
        if params.max_tokens == 0:
            return 1
        if isinstance(params, BeamSearchParams):
            return resolved(params.beam_width, self.defaults.num_beams, 1)
        return _samples(params) if self._samples_alone(params) else self.defaults.num_beams

    def answers(self, params: GenerationParams) -> int:
        """Answers that a request gives. Raises RequestError as `resolve` does."""
        beams = self._beams(params)
        if beams is not None:
            return beams.answers
        return params.n if isinstance(params, SamplingParams) and params.best_of else self.width(params)

    def resolve(
        self,
        params: GenerationParams,
        prompt: int,
        room: int,
        most: int | None,
        scored: int | Scored = 1,
        source: tuple[int, ...] | None = None,
    ) -> Decoding:
        """How a request with `prompt` decoder tokens decodes.

        room: new tokens where nobody says how many. most: what the model's positions allow, None: any number.
        scored: where prompt_logprobs begin, or what is asked instead. source: the encoder's token ids, None where it
        reads none.

        Sampling: temperature 0 is greedy. Unset, it is greedy unless the checkpoint says do_sample or n > 1. Where
        do_sample decides, an unset top_k is generate()'s 50; where the user does, only what the checkpoint's
        generation_config.json names itself.

        Raises RequestError for what contradicts itself or is not available.
        """
        self._check_ids(params)
        max_tokens = self._max_tokens(params, prompt, room, most)
        eos = frozenset() if params.ignore_eos else frozenset(self.defaults.eos)
        stopping = Stopping(max_tokens, eos, frozenset(params.stop_token_ids or ()))
        beams, asked = self._beams(params), overridden(self.defaults, params)
        keep = 1 if beams is None else max(2, 1 + len(stopping.ends))
        sampling = self._sampling(params, keep, asked.renormalize_logits)
        answer = Answer(prompt, prompt + max_tokens, source, best=beams is not None and sampling is None)
        return Decoding(
            width=self.width(params),
            beams=beams,
            sampling=sampling,
            logprobs=0 if params.logprobs is None and _samples(params) > self.answers(params) else params.logprobs,
            scored=_scored(params, scored, prompt),
            stopping=stopping,
            rules=tuple(rules(params, asked, [*self._spelled(params.bad_words or ())], answer)),
            stop_strings=self.defaults.stop_strings if params.stop is None else params.stop_strings,
        )

    def _beams(self, params: GenerationParams) -> Beams | None:
        width, d = self.width(params), self.defaults
        asked = params if isinstance(params, BeamSearchParams) else BeamSearchParams(beam_width=width)
        answers = resolved(asked.num_return_sequences, min(width, d.num_return_sequences), 1)
        if answers > width:
            limit = "max_tokens=0 leaves one" if params.max_tokens == 0 else f"beam_width={width}"
            raise RequestError(f"num_return_sequences={answers}: at most as many as beams ({limit})")
        if width == 1:
            _refuse_lonely(params)
        if width == 1 or self._samples_alone(params):
            return None
        return Beams(
            resolved(asked.length_penalty, d.length_penalty, 1.0),
            resolved(asked.early_stopping, d.early_stopping, False),
            answers,
            resolved(asked.patience, None, 1.0),
        )

    def _samples_alone(self, params: GenerationParams) -> bool:
        """Whether the request asks for samples that are no beams."""
        return isinstance(params, SamplingParams) and (params.samples > 1 or bool(params.temperature))

    def _check_defaults(self) -> None:
        d = self.defaults
        single = [token for token in (d.decoder_start_token_id, d.forced_bos) if token is not None]
        words = [token for word in d.bad_words for token in word]
        unknown = self._unknown([*single, *d.forced_eos, *d.eos, *words, *d.languages.values()])
        if unknown is not None:
            raise ConfigError(f"{FILE} names token id {unknown}; the model's go from 0 to {self._vocab_size - 1}")

    def _check_ids(self, params: GenerationParams) -> None:
        bos = params.forced_bos_token_id
        words = [word for word in params.bad_words or () if not isinstance(word, str)]
        named: Mapping[str, Iterable[int]] = {
            "stop_token_ids": params.stop_token_ids or (),
            "logit_bias": params.logit_bias or (),
            "allowed_token_ids": params.allowed_token_ids or (),
            "suppress_tokens": params.suppress_tokens or (),
            "begin_suppress_tokens": params.begin_suppress_tokens or (),
            "forced_bos_token_id": () if bos is None or bos == NO_TOKEN else (bos,),
            "forced_eos_token_id": params.forced_eos or (),
            "bad_words": [token for word in words for token in word],
        }
        for name, ids in named.items():
            unknown = self._unknown(ids)
            if unknown is not None:
                raise RequestError(f"{name} has token id {unknown}; ids go from 0 to {self._vocab_size - 1}")

    def _unknown(self, ids: Iterable[int]) -> int | None:
        return next((token for token in ids if not 0 <= token < self._vocab_size), None)

    def _sampling(self, params: GenerationParams, keep: int, normalized: bool) -> Sampling | None:
        temperature, top_k = self._temperature(params), given(params.top_k, self.defaults.top_k)
        if temperature == 0:
            self._refuse_idle(params)
            return None
        for name, value in self.defaults.missing_when_sampling:
            raise RequestError(
                f"{FILE} asks for {name}={value!r}, which is not available yet; temperature=0 does not sample, "
                "removing the field does without it"
            )
        if top_k is None:
            top_k = GENERATE_TOP_K if self.defaults.do_sample and params.temperature is None else 0
        return Sampling(
            temperature=temperature,
            top_k=max(0, top_k),
            top_p=resolved(params.top_p, self.defaults.top_p, 1.0),
            min_p=resolved(params.min_p, self.defaults.min_p, 0.0),
            seed=self._seeds.getrandbits(63) if params.seed is None else params.seed,
            keep=keep,
            normalized=normalized,
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
            name = "n" if n == getattr(params, "n", 1) else "best_of"
            raise RequestError(
                f"{name}={n} with temperature=0: greedy decoding has one answer; give temperature > 0, or {name}=1"
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
        wanted = given(params.max_tokens, self.defaults.max_new_tokens)
        if wanted is None and length is not None:
            wanted = length - prompt
            if wanted < 1:
                raise RequestError(
                    f"the decoder prompt has {prompt} tokens and {FILE} has max_length={length}; set max_tokens"
                )
        wanted = room if wanted is None else wanted
        return wanted if most is None else min(wanted, most)

    def _spelled(self, words: Sequence[str | Sequence[int]]) -> Iterator[tuple[int, ...]]:
        for word in words:
            yield from self._spellings(word) if isinstance(word, str) else [tuple(word)]

    def _spellings(self, word: str) -> list[tuple[int, ...]]:
        """Those that can be generated: a tokenizer may have tokens that the model's logits lack."""
        spellings = self._words(word)
        if not spellings:
            raise RequestError(f"bad_words has {word!r}, which the tokenizer drops; give text, or lists of token ids")
        return [ids for ids in spellings if self._unknown(ids) is None]


def _scored(params: GenerationParams, start: int | Scored, prompt: int) -> Scored | None:
    """What to report of the prompt's tokens from `start` on, if there are any."""
    if isinstance(start, Scored):
        return start
    if params.prompt_logprobs is not None and start < prompt:
        return Scored(start, params.prompt_logprobs)
    if params.max_tokens == 0:
        raise RequestError("max_tokens=0, and the decoder prompt has nothing to score; give a decoder_prompt")
    return None


def _refuse_lonely(params: GenerationParams) -> None:
    """Raise for parameters that say how beams compare, where there is one."""
    for name, neutral in NEUTRAL.items():
        value = getattr(params, name, neutral[0])
        if value is not None and value not in neutral and params.max_tokens != 0:
            raise RequestError(f"{name}={value!r} is for beams, and there is one; give beam_width > 1, or leave it out")


def _samples(params: GenerationParams) -> int:
    return params.samples if isinstance(params, SamplingParams) else 1
