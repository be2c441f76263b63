"""Defaults: what a checkpoint's generation_config.json asks of generation, typed and checked.

Where there is no such file, the same fields of config.json count, as in transformers. Owns which fields are followed,
which are harmless and which cannot be followed yet. Reads no file and knows no request.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transduce.errors import ConfigError

logger = logging.getLogger(__name__)

FILE = "generation_config.json"

MISSING: Mapping[str, tuple[object, ...]] = {
    "constraints": (),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "guidance_scale": (1,),
    "max_time": (),
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
    diversity_penalty early_stopping forced_decoder_ids is_assistant is_multilingual length_penalty
    logprob_threshold low_memory max_cache_len max_initial_timestamp_index max_matching_ngram_size
    median_filter_width no_speech_threshold no_timestamps_token_id num_assistant_tokens
    num_assistant_tokens_schedule num_beam_groups num_return_sequences output_attentions output_hidden_states
    output_logits output_scores pad_token_id prefill_chunk_size prev_sot_token_id prompt_condition_type
    prompt_lookup_num_tokens remove_invalid_values renormalize_logits return_dict_in_generate return_timestamps
    speculation_type target_lookbehind task task_to_id transformers_version use_cache use_mtp
"""
"""Fields without an effect on the answer here, or with one on beams alone, which are refused as a whole."""

_KINDS: Mapping[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What the checkpoint asks for where a request says nothing. None: it says nothing either.

    max_length and min_length count decoder tokens, the prompt included. forced_eos: ids, one of which is forced as the
    last token. languages: language code to its token, of multilingual speech models. missing_when_sampling: names and
    values of fields that a sampled request would need and that cannot be followed yet.
    """

    decoder_start_token_id: int | None = None
    eos: tuple[int, ...] = ()
    do_sample: bool = False
    num_beams: int = 1
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
    bad_words: tuple[tuple[int, ...], ...] = ()
    forced_bos: int | None = None
    forced_eos: tuple[int, ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    language: str | None = None
    languages: Mapping[str, int] = field(default_factory=dict)
    missing_when_sampling: tuple[tuple[str, object], ...] = ()


def load(generation: Mapping[str, Any] | None, config: Mapping[str, Any]) -> Defaults:
    """The defaults of a checkpoint from its generation_config.json (None where absent) and its config.json.

    A field that nobody knows is logged. Raises ConfigError for one that cannot be followed.
    """
    fields = _Fields(_legacy(config) if generation is None else generation)
    defaults = _defaults(fields)
    if generation is not None:
        for name in sorted(generation.keys() - fields.asked - set(HARMLESS.split())):
            logger.warning("%s: unknown field %s=%r is ignored", FILE, name, generation[name])
    return defaults


def _defaults(fields: "_Fields") -> Defaults:
    for name, value in fields.demands(MISSING):
        raise ConfigError(
            f"{FILE} asks for {name}={value!r}, which is not available yet; remove the field to generate without it"
        )
    start, bos = fields.of("decoder_start_token_id", int), fields.of("bos_token_id", int)
    return Defaults(
        decoder_start_token_id=bos if start is None else start,
        eos=fields.ids("eos_token_id"),
        do_sample=fields.of("do_sample", bool) or False,
        num_beams=fields.of("num_beams", int) or 1,
        temperature=fields.of("temperature", float),
        top_k=fields.of("top_k", int),
        top_p=fields.of("top_p", float),
        min_p=fields.of("min_p", float),
        max_new_tokens=fields.of("max_new_tokens", int),
        max_length=fields.of("max_length", int),
        min_new_tokens=fields.of("min_new_tokens", int),
        min_length=fields.of("min_length", int),
        stop_strings=fields.several("stop_strings", str),
        repetition_penalty=fields.of("repetition_penalty", float),
        no_repeat_ngram_size=fields.of("no_repeat_ngram_size", int),
        bad_words=tuple(tuple(word) for word in fields.several("bad_words_ids", list)),
        forced_bos=fields.of("forced_bos_token_id", int),
        forced_eos=fields.ids("forced_eos_token_id"),
        suppress_tokens=fields.ids("suppress_tokens"),
        begin_suppress_tokens=fields.ids("begin_suppress_tokens"),
        language=_code(fields.of("language", str)),
        languages={_code(name) or name: token for name, token in (fields.of("lang_to_id", dict) or {}).items()},
        missing_when_sampling=fields.demands(MISSING_WHEN_SAMPLING),
    )


class _Fields:
    """Typed access to a generation config's fields; ConfigError where a value has another type.

    asked: the names anybody wanted to know.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.asked: set[str] = set()

    def of(self, name: str, kind: type) -> Any:
        """One value of type `kind`, or None."""
        value = self._get(name)
        accepted = (int, float) if kind is float else kind
        if value is None or (isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))):
            return value
        raise self._refused(name, _KINDS.get(kind, f"a {kind.__name__}"))

    def several(self, name: str, kind: type) -> tuple[Any, ...]:
        """Values of type `kind`, listed or alone."""
        value = self._get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(each, kind) for each in values):
            raise self._refused(name, f"{_KINDS.get(kind, f'a {kind.__name__}')} or a list of such")
        return tuple(values)

    def ids(self, name: str) -> tuple[int, ...]:
        """Token ids, listed or alone."""
        return self.several(name, int)

    def demands(self, neutral: Mapping[str, tuple[object, ...]]) -> tuple[tuple[str, object], ...]:
        """Names and values of those fields that are set to something else than neutral."""
        present = ((name, self._get(name)) for name in neutral)
        return tuple((name, value) for name, value in present if value is not None and value not in neutral[name])

    def _get(self, name: str) -> Any:
        self.asked.add(name)
        return self._values.get(name)

    def _refused(self, name: str, wanted: str) -> ConfigError:
        return ConfigError(f"{FILE} has {name}={self._values[name]!r}; it should be {wanted}")


def _legacy(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """config.json as checkpoints from before generation_config.json use it."""
    if config.get("force_bos_token_to_be_generated"):
        return {**config, "forced_bos_token_id": config.get("bos_token_id")}
    return config


def _code(language: str | None) -> str | None:
    """<|en|> as en."""
    return language if language is None else language.removeprefix("<|").removesuffix("|>")
