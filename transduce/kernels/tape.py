"""A forward run once and replayed: its kernels one after another, on the addresses they first had, without its Python.

What is no kernel (a look-up, an addition) runs again by torch into the tensor it first made. So a replay is right for
whatever the static inputs hold by then, provided that the forward asks no tensor for its values. Knows no model.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from transduce.kernels.memory import zeros

T = TypeVar("T")

MOST_REPEATED = 8
"""Operators that are no kernels, beyond which a forward is not worth taping: each costs a copy more than it did."""

MOST_BYTES = 64 << 20
"""Results of kernels, beyond which a forward is not taped: its Python is little beside them."""

LINE = 64


class Scratch:
    """Where taped kernels put their results, shared by tapes of which one plays at a time: those of one engine."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def reset(self) -> None:
        """A new tape begins."""
        self._used = 0

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Uninitialized; as long as it is held, though a later tape may hold the same."""
        size = prod(shape) * dtype.itemsize
        if self._used + size > len(self._memory):
            self._memory, self._used = zeros(max(2 * len(self._memory), size, 1 << 20)), 0
        taken = self._memory[self._used : self._used + size]
        self._used += -(-size // LINE) * LINE
        return taken.view(dtype).view(tuple(shape))


class Tape:
    """What a forward did: kernels with their arguments, and operators that are run again."""

    def __init__(self, scratch: Scratch) -> None:
        self.steps: list[Callable[[], Any]] = []
        self._repeated = 0
        self._bytes = 0
        self._scratch = scratch
        self._held: list[Any] = []

    @property
    def worthwhile(self) -> bool:
        """Whether replaying is better than running the forward anew."""
        return self._repeated <= MOST_REPEATED and self._bytes <= MOST_BYTES

    def call(self, kernel: Callable[..., Any], arguments: tuple[Any, ...], held: tuple[Any, ...]) -> None:
        """A kernel ran, on the memory of `held`."""
        self.steps.append(partial(kernel, *arguments))
        self._held.append(held)

    def repeat(self, operator: OpOverload, arguments: tuple[Any, ...], options: Mapping[str, Any], result: Any) -> None:
        """An operator ran that is no kernel."""
        self._repeated += 1 if result is None or isinstance(result, Tensor) else MOST_REPEATED + 1
        again = partial(operator, *arguments, **options)
        self.steps.append(again if result is None else lambda: result.copy_(again()))

    def hold(self, result: Any) -> None:
        """Keep what later steps may read."""
        self._held.append(result)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Memory for a kernel's result."""
        self._bytes += prod(shape) * dtype.itemsize
        return torch.empty(shape, dtype=dtype) if self._bytes > MOST_BYTES else self._scratch.take(shape, dtype)

    def play(self) -> None:
        """Do it again."""
        for step in self.steps:
            step()


_TAPE: ContextVar[Tape | None] = ContextVar("transduce_tape", default=None)


def taping() -> bool:
    """Whether kernels are put on a tape."""
    return _TAPE.get() is not None


def run(kernel: Callable[..., Any], arguments: tuple[Any, ...], *held: Any) -> None:
    """Run a kernel; its arguments are addresses into what is `held`, and numbers."""
    kernel(*arguments)
    tape = _TAPE.get()
    if tape is not None:
        tape.call(kernel, arguments, held)


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor for a kernel's result."""
    tape = _TAPE.get()
    return torch.empty(shape, dtype=dtype) if tape is None else tape.empty(shape, dtype)


def record(fn: Callable[..., T], static: Sequence[Tensor], scratch: Scratch) -> Callable[[], T] | None:
    """fn(*static), to be called again whenever the contents of `static` have changed; its result is a Tensor.

    None for a forward of few kernels, or of large results: that is better called as it is.
    """
    scratch.reset()
    tape = Tape(scratch)
    token = _TAPE.set(tape)
    try:
        with _Recorder(tape):
            result = fn(*static)
    finally:
        _TAPE.reset(token)
    if not tape.worthwhile:
        return None

    def replay() -> T:
        tape.play()
        return result

    return replay


class _Recorder(TorchDispatchMode):
    """Sees every operator of a forward. Views are the memory that they were; a kernel has put itself on the tape."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: to skip torch's compiler is to import it, which takes longer than a model takes to load."""
        return False

    def __init__(self, tape: Tape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tape = tape

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        before = len(self._tape.steps)
        result = func(*args, **options)
        taped = len(self._tape.steps) > before
        if func._schema.is_mutable and not taped:
            self._tape.repeat(func, args, options, None)
        elif not taped and not _is_view(result, (args, options)):
            self._tape.repeat(func, args, options, result)
        self._tape.hold(result)
        return result


def _is_view(result: Any, given: Any) -> bool:
    """Whether a result is memory that was given. An operator's schema does not say: many copy only where they must."""
    return {*_storages(result)} <= {*_storages(given)}


def _storages(tree: Any) -> Iterator[int]:
    for each in tree_leaves(tree):
        if isinstance(each, Tensor) and each.layout is torch.strided:  # oneDNN's packed weights show none
            yield each.untyped_storage().data_ptr()
