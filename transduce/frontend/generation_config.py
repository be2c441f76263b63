"""Defaults: what a checkpoint's generation_config.json asks of generation, typed and checked.

Where there is no such file, the same fields of config.json count, as in transformers. Owns which fields are followed,
which are harmless and which cannot be followed yet. Reads no file and knows no request.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transduce.config import GenerationDefaults
from transduce.core.params import NUMBERS, is_early_stopping
from transduce.core.request import EarlyStopping
from transduce.errors import ConfigError
from transduce.models.config import CONFIG, GENERATION, START, start_token

logger = logging.getLogger(__name__)

FILE = GENERATION

MISSING: Mapping[str, tuple[object, ...]] = {
    "constraints": (),
    "diversity_penalty": (0,),
    "dola_layers": (),
    "encoder_repetition_penalty": (1,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "guidance_scale": (1,),
    "max_time": (),
    "num_beam_groups": (1,),
    "penalty_alpha": (0,),
    "sequence_bias": (),
    "token_healing": (False,),
    "watermarking_config": (),
}
"""Fields that would change the answer and cannot be followed yet, with the values besides null that ask for nothing."""

MISSING_WHEN_SAMPLING: Mapping[str, tuple[object, ...]] = {
    "epsilon_cutoff": (0, 1),
    "eta_cutoff": (0, 1),
    "top_h": (),
    "typical_p": (1,),
}
"""The same for fields that matter to sampled requests alone."""

HARMLESS = """
    _commit_hash _from_model_config alignment_heads assistant_confidence_threshold assistant_early_exit
    assistant_ensemble_weight assistant_lookbehind cache_config cache_implementation compile_config
    compression_ratio_threshold condition_on_prev_tokens continuous_batching_config disable_compile
    forced_decoder_ids is_assistant is_multilingual
    logprob_threshold low_memory max_cache_len max_initial_timestamp_index max_matching_ngram_size
    median_filter_width no_speech_threshold no_timestamps_token_id num_assistant_tokens
    num_assistant_tokens_schedule output_attentions output_hidden_states
    output_logits output_scores pad_token_id prefill_chunk_size prev_sot_token_id prompt_condition_type
    prompt_lookup_num_tokens remove_invalid_values return_dict_in_generate return_timestamps
    speculation_type target_lookbehind task task_to_id transformers_version use_cache use_mtp
"""
"""Fields without an effect on the answer here."""

LEAST: Mapping[str, int] = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "top_k": -1,
    "max_new_tokens": 1,
    "max_length": 1,
    "min_new_tokens": 0,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    **dict.fromkeys((*START, "forced_bos_token_id"), 0),
}
"""The smallest value of whole numbers."""

IDENTITY = (*START, "eos_token_id", "language", "lang_to_id")
"""Fields that say which tokens mean what, rather than how to generate."""

_KINDS: Mapping[type, str] = {bool: "true or false", str: "a string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What the checkpoint asks for where a request says nothing. None: it says nothing either.

    max_length and min_length count decoder tokens, the prompt included. forced_eos: ids, one of which is forced as the
    last token. languages: language code to its token, of multilingual speech models. missing_when_sampling: names and
    values of fields that such a request would need and that cannot be followed yet.
    """

    decoder_start_token_id: int | None = None
    eos: tuple[int, ...] = ()
    do_sample: bool = False
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float | None = None
    early_stopping: EarlyStopping | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    max_new_tokens: int | None = None
    max_length: int | None = None
    min_new_tokens: int | None = None
    min_length: int | None = None
    stop_strings: tuple[str, ...] = ()
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    encoder_no_repeat_ngram_size: int | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    forced_bos: int | None = None
    forced_eos: tuple[int, ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    renormalize_logits: bool = False
    language: str | None = None
    languages: Mapping[str, int] = field(default_factory=dict)
    missing_when_sampling: tuple[tuple[str, object], ...] = ()


def load(
    generation: Mapping[str, Any] | None, config: Mapping[str, Any], followed: GenerationDefaults = "auto"
) -> Defaults:
    """The defaults of a checkpoint from its generation_config.json (None where absent) and its config.json.

    followed: "none" leaves only what special tokens mean. A field that nobody knows is logged. Raises ConfigError for
    one that cannot be followed or is out of range.
    """
    if followed == "none":
        generation, config = generation and _identity(generation), _identity(config)
    fields = _Fields(_legacy(config), CONFIG) if generation is None else _Fields(generation, FILE)
    defaults = _defaults(fields)
    if generation is not None:
        for name in sorted(generation.keys() - fields.asked - set(HARMLESS.split())):
            logger.warning("%s: unknown field %s=%r is ignored", FILE, name, generation[name])
    return defaults


def _defaults(fields: "_Fields") -> Defaults:
    for name, value in fields.demands(MISSING):
        raise ConfigError(
            f"{fields.file} asks for {name}={value!r}, which is not available yet; "
            "remove the field to generate without it"
        )
    beams, answers = fields.whole("num_beams") or 1, fields.whole("num_return_sequences") or 1
    if answers > beams:
        raise ConfigError(
            f"{fields.file} asks for num_return_sequences={answers} of num_beams={beams}, which is not followed; "
            f"remove the field, and pass n={answers} to sample"
        )
    return Defaults(
        decoder_start_token_id=start_token({name: fields.whole(name) for name in START}),
        eos=fields.ids("eos_token_id"),
        do_sample=fields.of("do_sample", bool) or False,
        num_beams=beams,
        num_return_sequences=answers,
        length_penalty=fields.number("length_penalty"),
        early_stopping=fields.early_stopping(),
        temperature=_temperature(fields),
        top_k=fields.whole("top_k"),
        top_p=fields.number("top_p"),
        min_p=fields.number("min_p"),
        max_new_tokens=fields.whole("max_new_tokens"),
        max_length=fields.whole("max_length"),
        min_new_tokens=fields.whole("min_new_tokens"),
        min_length=fields.whole("min_length"),
        stop_strings=fields.several("stop_strings", "a non-empty string", _text),
        repetition_penalty=fields.number("repetition_penalty"),
        no_repeat_ngram_size=fields.whole("no_repeat_ngram_size"),
        encoder_no_repeat_ngram_size=fields.whole("encoder_no_repeat_ngram_size"),
        bad_words=tuple(map(tuple, fields.several("bad_words_ids", "a non-empty list of token ids", _word))),
        forced_bos=fields.whole("forced_bos_token_id"),
        forced_eos=fields.ids("forced_eos_token_id"),
        suppress_tokens=fields.ids("suppress_tokens"),
        begin_suppress_tokens=fields.ids("begin_suppress_tokens"),
        renormalize_logits=fields.of("renormalize_logits", bool) or False,
        language=_code(fields.of("language", str)),
        languages={_code(name) or name: token for name, token in fields.ids_by_name("lang_to_id").items()},
        missing_when_sampling=fields.demands(MISSING_WHEN_SAMPLING),
    )


def _temperature(fields: "_Fields") -> float | None:
    """0 is only another way to say that nothing is sampled."""
    temperature = fields.number("temperature")
    if temperature == 0 and fields.of("do_sample", bool):
        raise fields.refused("temperature", "above 0 with do_sample=true")
    return temperature


class _Fields:
    """Typed access to a generation config's fields; ConfigError where a value has another type or is out of range.

    file: what the values were read from. asked: the names anybody wanted to know.
    """

    def __init__(self, values: Mapping[str, Any], file: str) -> None:
        self._values = values
        self.file = file
        self.asked: set[str] = set()

    def of(self, name: str, kind: type) -> Any:
        """One value of type `kind`, or None."""
        value = self._get(name)
        if value is None or isinstance(value, kind):
            return value
        raise self.refused(name, _KINDS[kind])

    def whole(self, name: str) -> int | None:
        """One whole number from LEAST up, or None."""
        value: int | None = self._get(name)
        if value is None or (_whole(value) and value >= LEAST[name]):
            return value
        raise self.refused(name, f"a whole number >= {LEAST[name]}")

    def number(self, name: str) -> float | None:
        """One number in the range that requests have too, or None."""
        value: float | None = self._get(name)
        if value is None or value in NUMBERS[name]:
            return value
        raise self.refused(name, str(NUMBERS[name]))

    def early_stopping(self) -> EarlyStopping | None:
        """One of beam search's three ways to end, or None."""
        value: EarlyStopping | None = self._get("early_stopping")
        if value is None or is_early_stopping(value):
            return value
        raise self.refused("early_stopping", 'true, false or "never"')

    def several(self, name: str, kind: str, fits: Callable[[object], bool]) -> tuple[Any, ...]:
        """Values that are each a `kind`, as `fits` tells, listed or alone."""
        value = self._get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(map(fits, values)):
            raise self.refused(name, f"{kind} or a list of such")
        return tuple(values)

    def ids(self, name: str) -> tuple[int, ...]:
        """Token ids, listed or alone."""
        return self.several(name, "a whole number", _whole)

    def ids_by_name(self, name: str) -> Mapping[str, int]:
        """Token ids by name."""
        value = self._get(name)
        if value is None:
            return {}
        if isinstance(value, dict) and all(map(_whole, value.values())):
            return value
        raise self.refused(name, "a map of token ids")

    def demands(self, neutral: Mapping[str, tuple[object, ...]]) -> tuple[tuple[str, object], ...]:
        """Names and values of those fields that are set to something else than neutral."""
        present = ((name, self._get(name)) for name in neutral)
        return tuple((name, value) for name, value in present if value is not None and value not in neutral[name])

    def refused(self, name: str, wanted: str) -> ConfigError:
        return ConfigError(f"{self.file} has {name}={self._values[name]!r}; it should be {wanted}")

    def _get(self, name: str) -> Any:
        self.asked.add(name)
        return self._values.get(name)


def _identity(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: fields[name] for name in IDENTITY if name in fields}


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _word(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_whole, value))


def _legacy(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """config.json as checkpoints from before generation_config.json use it."""
    if config.get("force_bos_token_to_be_generated"):
        return {**config, "forced_bos_token_id": config.get("bos_token_id")}
    return config


def _code(language: str | None) -> str | None:
    """<|en|> as en."""
    return language if language is None else language.removeprefix("<|").removesuffix("|>")
