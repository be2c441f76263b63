"""How a checkpoint says that its weights are quantized, and what follows for the arguments it is loaded with.

Owns the `quantization_config` of config.json. Knows no scheme but by name, and no family.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from transduce import quant
from transduce.config import EngineConfig
from transduce.errors import CheckpointError, ConfigError
from transduce.models.config import CONFIG
from transduce.quant.keep import Keep
from transduce.runtime.checkpoint import Checkpoint

KEY = "quantization_config"

VERSION = 1
"""Of the way in which tensors are stored."""


def described(config: EngineConfig) -> dict[str, Any]:
    """What config.json of a checkpoint quantized as `config` asks holds under KEY."""
    return {"quant_method": config.quantization, "version": VERSION, "keep": list(config.quantization_keep or ())}


def resolve(config: EngineConfig, checkpoint: Checkpoint, keep: tuple[str, ...]) -> EngineConfig:
    """`config` with the scheme and the kept layers that hold for `checkpoint`: those it is stored with, if it is.

    keep: what the family keeps where nobody says otherwise.
    Raises CheckpointError for a checkpoint that something else quantized, ConfigError for arguments against it.
    """
    stored = checkpoint.config.get(KEY)
    if stored is None:
        return _resolved_floats(config, keep)
    method, keep = _read(checkpoint, stored)
    if config.quantization not in (None, method):
        raise ConfigError(
            f"quantization={config.quantization!r}: {_place(checkpoint)} is stored as {method}; leave it out"
        )
    if config.quantization_keep not in (None, keep):
        raise ConfigError(
            f"quantization_keep={config.quantization_keep!r}: {_place(checkpoint)} was quantized with {keep!r}; "
            "leave it out, or give the model it was made from"
        )
    return replace(config, quantization=method, quantization_keep=keep)


def chosen(given: EngineConfig, resolved: EngineConfig) -> Keep:
    """The layers kept; a pattern must match where the user gave it."""
    return Keep(resolved.quantization_keep or (), strict=given.quantization_keep is not None)


def _resolved_floats(config: EngineConfig, keep: tuple[str, ...]) -> EngineConfig:
    if config.quantization is not None:
        return config if config.quantization_keep is not None else replace(config, quantization_keep=keep)
    if config.quantization_keep:
        raise ConfigError(
            f"quantization_keep={config.quantization_keep!r}: nothing is quantized; give a quantization "
            f"({', '.join(quant.schemes())}) too, or leave it out"
        )
    return config


def _read(checkpoint: Checkpoint, stored: object) -> tuple[str, tuple[str, ...]]:
    """The scheme and the kept layers that `stored` names."""
    entry: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    method, version, keep = entry.get("quant_method"), entry.get("version"), entry.get("keep")
    if method not in quant.schemes():
        raise CheckpointError(
            f"{_place(checkpoint)} is quantized by {method!r}, which is not supported: give the model it was made "
            f"from, and quantization={next(iter(quant.schemes()))!r}"
        )
    if version != VERSION:
        raise CheckpointError(
            f"{_place(checkpoint)} is stored as {method} of version {version!r}, and this Transduce reads {VERSION}: "
            "quantize it anew, or install the Transduce that did"
        )
    if not isinstance(keep, list) or not all(isinstance(each, str) for each in keep):
        raise CheckpointError(
            f"{checkpoint.folder / CONFIG} has {KEY} with keep {keep!r}: it should be a list of names"
        )
    return str(method), tuple(keep)


def _place(checkpoint: Checkpoint) -> str:
    return repr(str(checkpoint.folder))
