"""What a user asks of generation: SamplingParams or BeamSearchParams, validated when made.

None means "as the checkpoint's generation_config.json has it"; frontend code resolves that. Knows no model.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from transduce.core.checks import NO_TOKEN, Range, any_tokens, integer, listed, number, require, token_ids
from transduce.core.guided import Guided, guided
from transduce.core.request import EarlyStopping

NUMBERS = {
    "temperature": Range(1e-5, 1e4, zero="greedy"),
    "top_p": Range(0.0, 1.0, open_low=True),
    "min_p": Range(0.0, 1.0),
    "repetition_penalty": Range(1e-2, 1e4),
    "length_penalty": Range(-10.0, 10.0),
    "patience": Range(0.0, 10.0, open_low=True),
}
"""What a request, and a checkpoint, may set these to. Divided by much less, float32 logits could overflow."""

_PENALTY = Range(-2.0, 2.0)
_BIAS = Range(-100.0, 100.0)
_INTEGERS = {
    "top_k": -1,
    "seed": 0,
    "max_tokens": 0,
    "min_tokens": 0,
    "logprobs": 0,
    "prompt_logprobs": 0,
    "truncate_prompt_tokens": 1,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "forced_bos_token_id": NO_TOKEN,
    "beam_width": 1,
    "num_return_sequences": 1,
}
_PENALTIES = ("presence_penalty", "frequency_penalty")
_FLAGS = ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output")
_IDS = ("stop_token_ids", "allowed_token_ids", "suppress_tokens", "begin_suppress_tokens")
_SEEDS = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationParams:
    """How to generate. An unset (None) field takes the checkpoint's generation_config value, else the neutral one.

    temperature: 0 is the likeliest. top_k: 0 or -1 is off.
    seed: below 2**64; None takes the next of the engine's own sequence, which EngineConfig.seed starts, so that a run
    repeats.
    max_tokens, min_tokens: new tokens; beside prompt_logprobs there may be 0. stop: strings that end the text;
    stop_token_ids: tokens that do. ignore_eos: run on to max_tokens.
    logprobs: how many of the likeliest tokens to report beside the chosen one.
    prompt_logprobs: the same of the decoder prompt's tokens but the first, as the model has them: no rule edits these.
    presence_penalty, frequency_penalty count output tokens; repetition_penalty counts the decoder prompt too.
    logit_bias: token id to an addition, in [-100, 100]. allowed_token_ids: nothing else may be generated.
    bad_words: strings or lists of token ids that may not be generated, in addition to the checkpoint's; [] drops these.
    suppress_tokens, begin_suppress_tokens: ids that are never generated, or not as the first new token; [] is none.
    no_repeat_ngram_size, encoder_no_repeat_ngram_size: no sequence of so many tokens twice, or none of the source's; 0
    is off. forced_bos_token_id, forced_eos_token_id (an id, or several): what follows a start token that stands alone,
    and what ends an answer of max_tokens; -1 is none. renormalize_logits: log-probabilities of beams, after the rules.
    prefix_allowed_tokens_fn: from the prompt's place in the list and the decoder tokens so far, a tensor, to the ids
    that may follow; for LLM alone.
    truncate_prompt_tokens: keep that many source tokens (reported in the output); without it a long prompt is refused.
    guided_json: a JSON schema (a dict, its text, or a pydantic model) that the answer follows; guided_regex: a regular
    expression that it matches as a whole; guided_choice: texts of which it is one; guided_grammar: a Lark grammar.

    Numbers and ids of numpy's are taken, and kept as Python's: they would overflow where those do not.
    Raises RequestError when a value is out of range, naming it and the range.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str | Sequence[int]] | None = None
    suppress_tokens: Sequence[int] | None = None
    begin_suppress_tokens: Sequence[int] | None = None
    no_repeat_ngram_size: int | None = None
    encoder_no_repeat_ngram_size: int | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Sequence[int] | None = None
    renormalize_logits: bool | None = None
    prefix_allowed_tokens_fn: Callable[[int, Any], Sequence[int]] | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    truncate_prompt_tokens: int | None = None
    guided_json: Mapping[str, Any] | str | type | None = None
    guided_regex: str | None = None
    guided_choice: Collection[str] | None = None
    guided_grammar: str | None = None

    def __post_init__(self) -> None:
        given = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}
        for name, value in given.items():
            if name in _INTEGERS:
                self._keep(name, integer(name, value, _INTEGERS[name]))
            if name in NUMBERS:
                self._keep(name, number(name, value, NUMBERS[name]))
        for name in _PENALTIES:
            self._keep(name, number(name, getattr(self, name), _PENALTY))
        for name in _FLAGS:
            require(isinstance(getattr(self, name), bool), name, getattr(self, name), "give True or False")
        for name in _IDS:
            if (value := getattr(self, name)) is not None:
                self._keep(name, token_ids(name, value))
        self._check_texts()
        self._check_bias()
        self._check_rules()
        self._check_together()

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_together(self) -> None:
        if self.seed is not None:
            require(self.seed < _SEEDS, "seed", self.seed, "give a whole number below 2**64")
        if self.allowed_token_ids is not None:
            some = len(self.allowed_token_ids) > 0
            require(some, "allowed_token_ids", self.allowed_token_ids, "name at least one")
        if self.max_tokens == 0:
            fix = "give at least 1, or prompt_logprobs too"
            require(self.prompt_logprobs is not None, "max_tokens", self.max_tokens, fix)
        if self.max_tokens is not None and self.min_tokens is not None:
            fix = f"it may not exceed max_tokens={self.max_tokens}"
            require(self.min_tokens <= self.max_tokens, "min_tokens", self.min_tokens, fix)
        if self.guided is not None:
            fix = f"an answer to guided_{self.guided.kind} has its end, and no special tokens; leave it out"
            require(not self.ignore_eos, "ignore_eos", self.ignore_eos, fix)
            require(self.skip_special_tokens, "skip_special_tokens", self.skip_special_tokens, fix)
            require(not self.forced_eos, "forced_eos_token_id", self.forced_eos_token_id, fix)

    def _check_texts(self) -> None:
        if self.stop is not None and not isinstance(self.stop, str):
            listed("stop", self.stop, "strings")
        for text in self.stop_strings:
            require(isinstance(text, str) and text != "", "stop", text, "give non-empty strings")
        if self.bad_words is None:
            return
        listed("bad_words", self.bad_words, "strings or lists of token ids")
        words = [word if isinstance(word, str) else token_ids("bad_words", word) for word in self.bad_words]
        for word in words:
            require(len(word) > 0, "bad_words", word, "give non-empty strings or lists of token ids")
        self._keep("bad_words", words)

    def _check_bias(self) -> None:
        if self.logit_bias is None:
            return
        fix = "give a map from token ids to numbers"
        require(isinstance(self.logit_bias, Mapping), "logit_bias", self.logit_bias, fix)
        biases = {
            integer("logit_bias", token, 0): number(f"logit_bias[{token}]", bias, _BIAS)
            for token, bias in self.logit_bias.items()
        }
        self._keep("logit_bias", biases)

    def _check_rules(self) -> None:
        if self.forced_eos_token_id is not None:
            self._keep("forced_eos_token_id", any_tokens("forced_eos_token_id", self.forced_eos_token_id))
        if self.renormalize_logits is not None:
            flag = isinstance(self.renormalize_logits, bool)
            require(flag, "renormalize_logits", self.renormalize_logits, "give True or False")
        if (function := self.prefix_allowed_tokens_fn) is not None:
            usable = callable(function) and isinstance(function, Hashable)
            require(usable, "prefix_allowed_tokens_fn", function, "give a function")

    @property
    def forced_eos(self) -> tuple[int, ...] | None:
        """`forced_eos_token_id` as a tuple, empty for none."""
        ids = self.forced_eos_token_id
        return ids if ids is None else (ids,) if isinstance(ids, int) else tuple(ids)

    @property
    def guided(self) -> Guided | None:
        """The structure that an answer must have."""
        return guided(self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams(GenerationParams):
    """Greedy decoding or sampling, or what the checkpoint's generation_config asks for. n: samples per prompt.

    best_of: draw so many and give the n whose tokens have the greatest mean log-probability, the best first.
    A temperature above 0, or more samples than one, turns off the beams of a checkpoint that asks for some.
    """

    n: int = 1
    best_of: int | None = None

    def __post_init__(self) -> None:
        GenerationParams.__post_init__(self)
        self._keep("n", integer("n", self.n, 1))
        if self.best_of is not None:
            self._keep("best_of", integer("best_of", self.best_of, 1))
            require(
                self.best_of >= self.n, "best_of", self.best_of, f"n={self.n} of them are wanted; give at least as many"
            )
        require(
            self.samples == 1 or self.max_tokens != 0,
            "n" if self.best_of is None else "best_of",
            self.samples,
            "without tokens (max_tokens=0) there is one answer",
        )

    @property
    def samples(self) -> int:
        """How many are drawn."""
        return self.best_of or self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams(GenerationParams):
    """Beam search, as transformers has it.

    beam_width: hypotheses at once; 1 is greedy, or samples. length_penalty: a finished hypothesis is ranked by its
    log-probability / length ** length_penalty, the length in new tokens. early_stopping: end when beam_width hypotheses
    have finished (True), when no other is likely to be better (False), or when none can ("never"). patience: that many
    times beam_width are to have finished instead, rounded; as openai/whisper has it beside early_stopping=True.
    num_return_sequences: how many of the best to return. temperature: above 0, beams are drawn.

    stop strings do not end a hypothesis: they cut the answers.
    """

    beam_width: int | None = None
    length_penalty: float | None = None
    early_stopping: EarlyStopping | None = None
    patience: float | None = None
    num_return_sequences: int | None = None

    def __post_init__(self) -> None:
        GenerationParams.__post_init__(self)
        known = self.early_stopping is None or is_early_stopping(self.early_stopping)
        require(known, "early_stopping", self.early_stopping, "give True, False or 'never'")


def is_early_stopping(value: object) -> bool:
    """Whether it is one of EarlyStopping's values."""
    return isinstance(value, bool) or value == "never"
