"""How a checkpoint says that its weights are quantized, and what follows for the arguments it is loaded with.

Reads the `quantization_config` of config.json. Knows no scheme but by name, and no family.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from transduce import quant
from transduce.config import EngineConfig
from transduce.errors import CheckpointError, ConfigError
from transduce.models.config import CONFIG
from transduce.quant.base import Scheme
from transduce.quant.bitsandbytes import METHOD
from transduce.quant.keep import Keep
from transduce.quant.stored import KEY, VERSION
from transduce.runtime.checkpoint import Checkpoint


def resolve(config: EngineConfig, checkpoint: Checkpoint, keep: tuple[str, ...]) -> EngineConfig:
    """`config` with the scheme and the kept layers that hold for `checkpoint`: those it is stored with, if it is.

    keep: what the family keeps where nobody says otherwise.
    Raises CheckpointError for a checkpoint that something else quantized, ConfigError for arguments against it.
    """
    if KEY not in checkpoint.config:
        return _checked(_resolved_floats(config, keep))
    method, said, keep = _read(checkpoint)
    if config.quantization not in (None, method, said):
        raise ConfigError(
            f"quantization={config.quantization!r}: {_place(checkpoint)} is stored as {method}; leave it out"
        )
    if config.quantization_keep not in (None, keep):
        raise ConfigError(
            f"quantization_keep={config.quantization_keep!r}: {_place(checkpoint)} was quantized with {keep!r}; "
            "leave it out, or give the model it was made from"
        )
    return _checked(replace(config, quantization=method, quantization_keep=keep))


def scheme(config: EngineConfig, checkpoint: Checkpoint) -> Scheme:
    """The scheme of a resolved `config`, with what the checkpoint says of it."""
    return quant.said(_entry(checkpoint)) or quant.named(config.quantization)


def is_bitsandbytes(name: str | None) -> bool:
    """Whether a scheme is one of bitsandbytes'."""
    return name is not None and name.startswith(METHOD)


def _checked(config: EngineConfig) -> EngineConfig:
    if config.load_format == METHOD and not is_bitsandbytes(config.quantization):
        raise ConfigError(
            f"load_format={METHOD!r}: the weights are to be {config.quantization}; give quantization={METHOD!r}, or "
            "load_format='auto'"
        )
    return config


def chosen(given: EngineConfig, resolved: EngineConfig) -> Keep:
    """The layers kept; a pattern must match where the user gave it."""
    return Keep(resolved.quantization_keep or (), strict=given.quantization_keep is not None)


def _resolved_floats(config: EngineConfig, keep: tuple[str, ...]) -> EngineConfig:
    if config.quantization is None and config.load_format == METHOD:
        config = replace(config, quantization=METHOD)
    if config.quantization is not None:
        left = (*keep, *(each for each in quant.named(config.quantization).keep if each not in keep))
        return config if config.quantization_keep is not None else replace(config, quantization_keep=left)
    if config.quantization_keep:
        raise ConfigError(
            f"quantization_keep={config.quantization_keep!r}: nothing is quantized; give a quantization "
            f"({', '.join(quant.schemes())}) too, or leave it out"
        )
    return config


def _entry(checkpoint: Checkpoint) -> Mapping[str, Any]:
    stored = checkpoint.config.get(KEY)
    return stored if isinstance(stored, dict) else {}


def _read(checkpoint: Checkpoint) -> tuple[str, str | None, tuple[str, ...]]:
    """The scheme, what the checkpoint calls its method, and the layers that it says it keeps."""
    entry = _entry(checkpoint)
    scheme = quant.said(entry)
    method, version = entry.get("quant_method"), entry.get("version")
    if scheme is None or scheme.name is None:
        raise CheckpointError(
            f"{_place(checkpoint)} is quantized by {method!r}, which is not supported: give the model it was made "
            f"from, and a quantization ({', '.join(quant.schemes())})"
        )
    if is_bitsandbytes(scheme.name):
        return (
            scheme.name,
            METHOD,
            _names(checkpoint, "llm_int8_skip_modules", entry.get("llm_int8_skip_modules") or []),
        )
    if version != VERSION:
        raise CheckpointError(
            f"{_place(checkpoint)} is stored as {method} of version {version!r}, and this Transduce reads {VERSION}: "
            "quantize it anew, or install the Transduce that did"
        )
    return scheme.name, scheme.name, _names(checkpoint, "keep", entry.get("keep"))


def _names(checkpoint: Checkpoint, key: str, names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise CheckpointError(
            f"{checkpoint.folder / CONFIG} has {KEY} with {key} {names!r}: it should be a list of names"
        )
    return tuple(names)


def _place(checkpoint: Checkpoint) -> str:
    return repr(str(checkpoint.folder))
