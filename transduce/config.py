"""EngineConfig: every engine argument, frozen, and resolved once into a new object.

Owns the defaults, what is said about arguments that do not exist, and all reading of the environment. Knows no model:
`resolve` is given a model's limits.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal

from transduce.errors import ConfigError

DType = Literal["auto", "float32", "bfloat16", "float16"]
PageType = Literal["auto", "float32", "bfloat16", "float16", "int8"]
LoadFormat = Literal["auto", "safetensors", "pt", "bitsandbytes", "dummy"]
GenerationDefaults = Literal["auto", "none"]
GIB = 1 << 30
KV_SPACE = "TRANSDUCE_CPU_KVCACHE_SPACE"
SPIN = "GOMP_SPINCOUNT"

LOAD_FORMATS = ("auto", "safetensors", "pt", "bitsandbytes", "dummy")
DTYPES = ("auto", "float32", "bfloat16", "float16")
DTYPE_NAMES = {**{name: name for name in DTYPES}, "half": "float16", "float": "float32"}

NEEDLESS = """
    async_scheduling config_format cpu_offload_gb device disable_custom_all_reduce disable_log_requests
    disable_log_stats disable_mm_preprocessor_cache distributed_executor_backend enable_chunked_prefill
    enable_prefix_caching max_parallel_loading_workers max_seq_len_to_capture
    mm_processor_cache_gb preemption_mode runner scheduling_policy served_model_name swap_space task tokenizer_mode
    use_v2_block_manager
"""
"""vLLM's engine arguments for what is decided by itself here, or does not exist."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model can take: longest encoder input and decoder sequence in tokens (None: no limit)."""

    max_source: int | None
    max_target: int | None


MEDIA = ("image", "audio", "video")
MOST_MEDIA = 16
"""Images, or the like, of one prompt, where nothing else is said."""

_INTEGERS = {
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "max_encode_tokens": 1,
    "block_size": 1,
    "tensor_parallel_size": 1,
    "seed": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Engine arguments, named as vLLM names them.

    max_model_len: longest encoder input and longest decoder sequence; None: the model's own positions, or where it
    has none what the KV pool holds for one request. max_num_seqs: hypotheses decoded side by side.
    max_num_batched_tokens: decoder tokens per step. max_encode_tokens: encoder rows per step (a larger single item
    runs alone). kv_cache_bytes: size of the KV pool; None: from TRANSDUCE_CPU_KVCACHE_SPACE (GiB), else free memory.
    kv_cache_dtype: "int8" rounds keys and values to 8 bits, half of what they take in bfloat16; "auto" does so beside
    weights in int8, and else keeps them in dtype.
    dtype: "auto" is bfloat16 where the CPU multiplies it natively, else float32.
    quantization: how weights are stored; None: as the checkpoint has them. quantization_keep: names of layers, or
    patterns over them, that stay in the model's dtype; None: those that the family is known to need.
    generation_config: "none" takes nothing from the checkpoint's generation_config.json but its special tokens.
    speculate: whether to draft the next tokens from a request's source and output so far; the answers stay the same
    bit for bit where the attention backend computes a row alike in any company, and None drafts only there.
    load_format: "dummy" gives random weights, "bitsandbytes" is "auto" for weights that are quantized so, or to be.
    attention_backend: None picks the best one.
    seed: starts the sequence that requests without a seed of their own take theirs from.
    limit_mm_per_prompt: most images of one prompt, such as {"image": 4}; None: MOST_MEDIA.
    allowed_media_domains: hosts that images are fetched from, wherever they lead; None: all public ones.
    allowed_local_media_path: a folder under which file:// URLs are read; None: none is. media_timeout: seconds that a
    URL may take.

    Raises ConfigError for a value of another type or out of range, naming it and the way out.
    """

    model: str
    tokenizer: str | None = None
    revision: str | None = None
    dtype: DType = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    max_encode_tokens: int = 2048
    block_size: int = 16
    kv_cache_bytes: int | None = None
    kv_cache_dtype: PageType = "auto"
    gpu_memory_utilization: float = 0.9
    quantization: str | None = None
    quantization_keep: tuple[str, ...] | None = None
    generation_config: GenerationDefaults = "auto"
    load_format: LoadFormat = "auto"
    tensor_parallel_size: int = 1
    enforce_eager: bool = False
    trust_remote_code: bool = False
    skip_tokenizer_init: bool = False
    attention_backend: str | None = None
    speculate: bool | None = None
    seed: int = 0
    limit_mm_per_prompt: Mapping[str, int] | None = None
    allowed_media_domains: tuple[str, ...] | None = None
    allowed_local_media_path: str | None = None
    media_timeout: float = 15.0

    def __post_init__(self) -> None:
        _text("model", self.model, "a folder or a hub id")
        for name in ("tokenizer", "revision", "quantization", "attention_backend", "allowed_local_media_path"):
            if getattr(self, name) is not None:
                _text(name, getattr(self, name), "a non-empty string or None")
        for name, low in _INTEGERS.items():
            _whole(name, getattr(self, name), low)
        for name in ("max_model_len", "kv_cache_bytes"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)
        for name in ("enforce_eager", "trust_remote_code", "skip_tokenizer_init"):
            _flag(name, getattr(self, name))
        if self.speculate is not None:
            _flag("speculate", self.speculate)
        _fraction("gpu_memory_utilization", self.gpu_memory_utilization)
        _only("tensor_parallel_size", self.tensor_parallel_size, 1, "tensor parallelism over several devices")
        if self.quantization_keep is not None:
            _texts("quantization_keep", self.quantization_keep, "names or patterns, such as ('lm_head', '*.fc2')")
        if self.dtype != "float16":  # no way out on every device: the device judges it
            _among("dtype", self.dtype, DTYPES[:-1])
        _among("kv_cache_dtype", self.kv_cache_dtype, (*DTYPES, "int8"))
        _among("generation_config", self.generation_config, ("auto", "none"))
        _among("load_format", self.load_format, LOAD_FORMATS)
        _check_media(self)


def from_options(model: str | os.PathLike[str], options: Mapping[str, Any]) -> EngineConfig:
    """A config from keyword arguments, which may hold paths, torch's dtypes and vLLM's other names for dtypes.

    Raises ConfigError for a name that does not exist and for a value that cannot work.
    """
    for name in options:
        _check_name(name)
    given = {"model": model, **options}
    given = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in given.items()}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    if isinstance(limit := given.get("limit_mm_per_prompt"), str):
        given["limit_mm_per_prompt"] = _limits(limit)
    if "dtype" in given:
        given["dtype"] = DTYPE_NAMES.get(str(given["dtype"]).removeprefix("torch."), given["dtype"])
    return EngineConfig(**given)


def _limits(text: str) -> object:
    """What vLLM's flag says, in JSON or as image=4,audio=1; the text as it is where it is neither."""
    try:
        pairs = (part.partition("=") for part in text.split(","))
        return json.loads(text) if text[:1] == "{" else {name.strip(): int(number) for name, _, number in pairs}
    except ValueError:
        return text


def resolve(config: EngineConfig, limits: Limits) -> EngineConfig:
    """A new config with max_model_len bounded by the model and the KV space taken from the environment.

    Raises ConfigError when max_model_len exceeds what the model has positions for, or the environment is malformed.
    """
    return replace(
        config,
        max_model_len=_model_len(config.max_model_len, limits),
        kv_cache_bytes=config.kv_cache_bytes if config.kv_cache_bytes is not None else _kv_space(),
    )


def calm_threads() -> None:
    """Let torch's worker threads wait a moment for work and then sleep; to be called before torch is imported.

    By default they spin, and beside a busy neighbour one step takes up to fifty times as long. A setting that the
    user has made stays. Where torch has been imported, it is too late.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault(SPIN, "10000")


def threads_spin() -> bool:
    """Whether torch's idle threads spin, because torch was imported before anything could be said against it."""
    return SPIN not in os.environ


def kernels_level() -> str | None:
    """TRANSDUCE_KERNELS: the instruction set of the CPU kernels, or "off"; None: the best there is."""
    return os.environ.get("TRANSDUCE_KERNELS") or None


def variables(prefix: str) -> dict[str, str]:
    """The environment's variables whose names begin so."""
    return {name: value for name, value in os.environ.items() if name.startswith(prefix)}


def offline() -> bool:
    """Whether the user asked huggingface_hub not to use the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}


def _model_len(wanted: int | None, limits: Limits) -> int | None:
    if wanted is not None and limits.max_target is not None and wanted > limits.max_target:
        raise ConfigError(
            f"max_model_len={wanted}: the model has {limits.max_target} decoder positions; give at most that"
        )
    return wanted if wanted is not None else limits.max_target


def _kv_space() -> int | None:
    text = os.environ.get(KV_SPACE)
    if text is None:
        return None
    try:
        size = int(float(text) * GIB)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise ConfigError(f"{KV_SPACE}={text!r}: give the size of the KV cache in GiB, such as 4 or 0.5")
    return size


def _check_name(name: str) -> None:
    known = [field.name for field in fields(EngineConfig)]
    if name in known:
        return
    if name in NEEDLESS.split():
        raise ConfigError(f"{name}: Transduce has no such argument and needs none: leave it out")
    if "speculative" in name:
        raise ConfigError(
            f"{name}: Transduce drafts from a request's own text, without another model: leave it out, or give "
            f"speculate=True or False"
        )
    close = get_close_matches(name, known)
    way_out = f"did you mean {', '.join(close)}?" if close else "leave it out"
    raise ConfigError(f"there is no engine argument {name!r}; {way_out}")


def _text(name: str, value: object, wanted: str) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name}={value!r}: give {wanted}")


def _whole(name: str, value: object, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigError(f"{name}={value!r}: give a whole number >= {low}")


def _check_media(config: EngineConfig) -> None:
    if config.allowed_media_domains is not None:
        _texts("allowed_media_domains", config.allowed_media_domains, "host names, such as ('images.example.com',)")
    if config.limit_mm_per_prompt is not None:
        _counts("limit_mm_per_prompt", config.limit_mm_per_prompt)
    _positive("media_timeout", config.media_timeout)


def _texts(name: str, value: object, wanted: str) -> None:
    if not isinstance(value, tuple) or not all(isinstance(each, str) and each for each in value):
        raise ConfigError(f"{name}={value!r}: give a tuple of {wanted}")


def _counts(name: str, value: object) -> None:
    counts = value if isinstance(value, Mapping) else {None: value}
    if not all(name in MEDIA and type(count) is int and count >= 0 for name, count in counts.items()):
        raise ConfigError(f"{name}={value!r}: give a number for {', '.join(MEDIA)}, such as {{'image': 4}} or image=4")


def _positive(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ConfigError(f"{name}={value!r}: give a number above 0")


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r}: give True or False")


def _fraction(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise ConfigError(f"{name}={value!r}: give a fraction in (0, 1]")


def _only(name: str, value: object, allowed: object, missing: str) -> None:
    if value != allowed:
        raise ConfigError(f"{name}={value!r}: {missing} is not available yet; leave it at {allowed!r}")


def _among(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r}: give one of {', '.join(allowed)}")
