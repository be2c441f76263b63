"""Kernels as opaque operators: a recorder of a forward sees one node per call, which runs anew at every replay.

Called directly while nothing records, as the dispatcher costs more than a small kernel. Knows no kernel.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from torch import ops
from torch.library import Library
from torch.utils._python_dispatch import _get_current_dispatch_mode

_LIBRARY = Library("transduce", "FRAGMENT")

F = TypeVar("F", bound=Callable[..., Any])


def recording() -> bool:
    """Whether operators are being watched: by a recorder, or by a mode that checks them."""
    return _get_current_dispatch_mode() is not None


def define(schema: str, run: Callable[..., Any], shape: Callable[..., Any], devices: Sequence[str]) -> Any:
    """The operator transduce::SCHEMA, which runs `run` on these devices, and `shape` where only shapes matter."""
    _LIBRARY.define(schema)
    name = schema.partition("(")[0]
    for device in devices:
        _LIBRARY.impl(name, run, device)
    _LIBRARY.impl(name, shape, "Meta")
    return getattr(ops.transduce, name).default


def opaque(schema: str, shape: Callable[..., Any]) -> Callable[[F], F]:
    """Makes a function over tensors an operator of the same arguments, for CPU."""

    def decorate(run: F) -> F:
        operator = define(schema, run, shape, ["CPU"])

        @wraps(run)
        def call(*args: Any) -> Any:
            return operator(*args) if recording() else run(*args)

        return cast(F, call)

    return decorate
