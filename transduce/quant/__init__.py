"""Weight schemes: how a linear layer, or a table of tokens, stores and uses its weight.

A scheme is one file in this folder that defines a Scheme with a name; `named` finds it. Knows no layer and no model.
"""

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from inspect import isabstract
from typing import Any

from transduce.errors import ConfigError
from transduce.quant.base import Scheme
from transduce.quant.none import Unquantized


def named(name: str | None) -> Scheme:
    """The scheme called `name`; None: weights in the model's dtype. Raises ConfigError if there is none."""
    if name is None:
        return Unquantized()
    found = schemes().get(name)
    if found is None:
        raise ConfigError(f"quantization={name!r}: there is no such scheme; give one of {', '.join(schemes())}")
    return found


def said(entry: Mapping[str, Any]) -> Scheme | None:
    """The scheme for weights stored as an entry of config.json says; None: there is none."""
    return next((found for scheme in schemes().values() if (found := scheme.of(entry)) is not None), None)


@cache
def schemes() -> Mapping[str, Scheme]:
    """Every scheme in this folder that has a name."""
    return {scheme.name: scheme for scheme in _discover() if scheme.name is not None}


def _discover() -> Iterator[Scheme]:
    for info in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Scheme) and not isabstract(value):
                yield value()
