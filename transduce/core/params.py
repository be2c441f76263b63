"""What a user asks of generation: SamplingParams or BeamSearchParams, validated when made.

None means "as the checkpoint's generation_config.json has it"; frontend code resolves that. Knows no model.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from transduce.core.guided import Guided, guided
from transduce.core.request import EarlyStopping
from transduce.errors import RequestError


def _is_a(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` (itself outside where `open_low`) to `high`, and 0 too where it has a meaning, `zero`."""

    low: float
    high: float
    open_low: bool = False
    zero: str = ""

    def __contains__(self, value: Any) -> bool:
        if not _is_a(Real, value):
            return False
        inside = self.low <= value <= self.high and not (self.open_low and value == self.low)
        return bool(inside or (self.zero and value == 0))

    def __str__(self) -> str:
        zero = f"0 ({self.zero}) or " if self.zero else ""
        return f"{zero}a number in {'(' if self.open_low else '['}{self.low:g}, {self.high:g}]"


NUMBERS = {
    "temperature": Range(1e-5, 1e4, zero="greedy"),
    "top_p": Range(0.0, 1.0, open_low=True),
    "min_p": Range(0.0, 1.0),
    "repetition_penalty": Range(1e-2, 1e4),
    "length_penalty": Range(-10.0, 10.0),
}
"""What a request, and a checkpoint, may set these to. Divided by much less, float32 logits could overflow."""

_PENALTY = Range(-2.0, 2.0)
_BIAS = Range(-100.0, 100.0)
_INTEGERS = {
    "top_k": -1,
    "seed": 0,
    "max_tokens": 1,
    "min_tokens": 0,
    "logprobs": 0,
    "truncate_prompt_tokens": 1,
    "beam_width": 1,
    "num_return_sequences": 1,
}
_PENALTIES = ("presence_penalty", "frequency_penalty")
_FLAGS = ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output")
_SEEDS = 2**64


def _require(ok: bool, name: str, value: object, fix: str) -> None:
    if not ok:
        raise RequestError(f"{name}={value!r}: {fix}")


def _integer(name: str, value: Any, low: int) -> int:
    inside = _is_a(Integral, value) and value >= low
    _require(inside, name, value, f"give a whole number >= {low}")
    return int(value)


def _number(name: str, value: Any, within: Range) -> float:
    _require(value in within, name, value, f"give {within}")
    return float(value)


def _list(name: str, value: object, of: str) -> None:
    listed = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    _require(listed, name, value, f"give a list of {of}")


def _token_ids(name: str, ids: Collection[int]) -> list[int]:
    _list(name, ids, "token ids")
    return [_integer(name, token, 0) for token in ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationParams:
    """How to generate. An unset (None) field takes the checkpoint's generation_config value, else the neutral one.

    temperature: 0 is the likeliest. top_k: 0 or -1 is off.
    seed: below 2**64; None takes the next of the engine's own sequence, which EngineConfig.seed starts, so that a run
    repeats.
    max_tokens, min_tokens: new tokens. stop: strings that end the text; stop_token_ids: tokens that do.
    ignore_eos: run on to max_tokens. logprobs: how many of the likeliest tokens to report beside the chosen one.
    presence_penalty, frequency_penalty count output tokens; repetition_penalty counts the decoder prompt too.
    logit_bias: token id to an addition, in [-100, 100]. allowed_token_ids: nothing else may be generated.
    bad_words: strings or lists of token ids that may not be generated.
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
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str | Sequence[int]] | None = None
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
                self._keep(name, _integer(name, value, _INTEGERS[name]))
            if name in NUMBERS:
                self._keep(name, _number(name, value, NUMBERS[name]))
        for name in _PENALTIES:
            self._keep(name, _number(name, getattr(self, name), _PENALTY))
        for name in _FLAGS:
            _require(isinstance(getattr(self, name), bool), name, getattr(self, name), "give True or False")
        for name in ("stop_token_ids", "allowed_token_ids"):
            if (value := getattr(self, name)) is not None:
                self._keep(name, _token_ids(name, value))
        self._check_texts()
        self._check_bias()
        self._check_together()

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_together(self) -> None:
        if self.seed is not None:
            _require(self.seed < _SEEDS, "seed", self.seed, "give a whole number below 2**64")
        if self.allowed_token_ids is not None:
            some = len(self.allowed_token_ids) > 0
            _require(some, "allowed_token_ids", self.allowed_token_ids, "name at least one")
        if self.max_tokens is not None and self.min_tokens is not None:
            fix = f"it may not exceed max_tokens={self.max_tokens}"
            _require(self.min_tokens <= self.max_tokens, "min_tokens", self.min_tokens, fix)
        if self.guided is not None:
            fix = f"an answer to guided_{self.guided.kind} has its end, and no special tokens; leave it out"
            _require(not self.ignore_eos, "ignore_eos", self.ignore_eos, fix)
            _require(self.skip_special_tokens, "skip_special_tokens", self.skip_special_tokens, fix)

    def _check_texts(self) -> None:
        if self.stop is not None and not isinstance(self.stop, str):
            _list("stop", self.stop, "strings")
        for text in self.stop_strings:
            _require(isinstance(text, str) and text != "", "stop", text, "give non-empty strings")
        if self.bad_words is None:
            return
        _list("bad_words", self.bad_words, "strings or lists of token ids")
        words = [word if isinstance(word, str) else _token_ids("bad_words", word) for word in self.bad_words]
        for word in words:
            _require(len(word) > 0, "bad_words", word, "give non-empty strings or lists of token ids")
        self._keep("bad_words", words)

    def _check_bias(self) -> None:
        if self.logit_bias is None:
            return
        fix = "give a map from token ids to numbers"
        _require(isinstance(self.logit_bias, Mapping), "logit_bias", self.logit_bias, fix)
        biases = {
            _integer("logit_bias", token, 0): _number(f"logit_bias[{token}]", bias, _BIAS)
            for token, bias in self.logit_bias.items()
        }
        self._keep("logit_bias", biases)

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

    A temperature above 0, or n above 1, turns off the beams of a checkpoint that asks for some.
    """

    n: int = 1

    def __post_init__(self) -> None:
        GenerationParams.__post_init__(self)
        self._keep("n", _integer("n", self.n, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams(GenerationParams):
    """Beam search, as transformers has it.

    beam_width: hypotheses at once; 1 is greedy, or samples. length_penalty: a finished hypothesis is ranked by its
    log-probability / length ** length_penalty, the length in new tokens. early_stopping: end when beam_width hypotheses
    have finished (True), when no other is likely to be better (False), or when none can ("never").
    num_return_sequences: how many of the best to return. temperature: above 0, beams are drawn.

    stop strings do not end a hypothesis: they cut the answers.
    """

    beam_width: int | None = None
    length_penalty: float | None = None
    early_stopping: EarlyStopping | None = None
    num_return_sequences: int | None = None

    def __post_init__(self) -> None:
        GenerationParams.__post_init__(self)
        known = self.early_stopping is None or is_early_stopping(self.early_stopping)
        _require(known, "early_stopping", self.early_stopping, "give True, False or 'never'")


def is_early_stopping(value: object) -> bool:
    """Whether it is one of EarlyStopping's values."""
    return isinstance(value, bool) or value == "never"
