"""Attention backends: paged KV reads and writes for decoders, packed attention for encoders.

A backend is one file in this folder that defines one AttentionBackend subclass; `select` finds it by its Caps.
Knows no model and no scheduler. `ops` holds the same calls as opaque operators.
"""

import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isabstract

import torch

from transduce.attention.base import AttentionBackend, Caps
from transduce.errors import ConfigError


@cache
def backends() -> tuple[AttentionBackend, ...]:
    """Every backend in this folder that this machine runs, highest priority first."""
    return tuple(backend for backend in _discovered() if backend.missing() is None)


@cache
def named(name: str) -> AttentionBackend:
    """The backend called `name`. Raises ConfigError if there is none, or if this machine lacks what it needs."""
    for backend in _discovered():
        if backend.caps.name == name:
            if missing := backend.missing():
                raise ConfigError(f"attention backend {name!r} cannot run: {missing}. There are: {_names()}")
            return backend
    raise ConfigError(f"no attention backend {name!r}; there are: {_names()}")


def select(
    device_type: str,
    dtype: torch.dtype,
    head_dim: int,
    need_bias: bool,
    need_softcap: bool,
    need_window: bool,
    name: str | None = None,
    pages: torch.dtype | None = None,
) -> AttentionBackend:
    """The backend called `name`, or the one of highest priority that can do what is needed.

    dtype: of queries, keys and values. pages: of the cache, None: the same.

    Raises ConfigError that says what each candidate lacks.
    """
    refusals = []
    for backend in backends() if name is None else (named(name),):
        lacks = list(_lacks(backend.caps, device_type, dtype, head_dim, need_bias, need_softcap, need_window))
        if pages not in {None, dtype, *backend.caps.pages}:
            lacks.append(f"pages of {pages}")
        if not lacks:
            return backend
        refusals.append(f"{backend.caps.name} lacks {', '.join(lacks)}")
    raise ConfigError(f"no attention backend fits: {'; '.join(refusals)}. There are: {_names()}")


@cache
def _discovered() -> tuple[AttentionBackend, ...]:
    return tuple(sorted(_discover(), key=lambda backend: -backend.caps.priority))


def _discover() -> Iterator[AttentionBackend]:
    for info in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{info.name}")
        own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
        for value in own:
            if isinstance(value, type) and issubclass(value, AttentionBackend) and not isabstract(value):
                yield value()


def _names() -> str:
    return ", ".join(backend.caps.name for backend in backends())


def _lacks(
    caps: Caps, device_type: str, dtype: torch.dtype, head_dim: int, bias: bool, softcap: bool, window: bool
) -> Iterator[str]:
    if device_type not in caps.devices:
        yield f"device {device_type}"
    if dtype not in caps.dtypes:
        yield f"dtype {dtype}"
    if head_dim not in caps.head_dims:
        yield f"head size {head_dim}"
    if bias and not caps.bias:
        yield "a position bias"
    if softcap and not caps.softcap:
        yield "a softcap"
    if window and not caps.window:
        yield "a sliding window"
