"""The contract of a device. Knows no model, no scheduler and no kernel."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: what the process may have in all, what it could still take, and the most it has held so far."""

    total: int
    free: int
    peak: int


class Device(ABC):
    """Where tensors live. `kind` is what Caps.devices name; `torch_device` is where tensors are made."""

    kind: str
    torch_device: torch.device

    @abstractmethod
    def memory(self) -> Memory:
        """Memory now."""

    @abstractmethod
    def best_dtype(self) -> torch.dtype:
        """The dtype `auto` stands for."""

    @abstractmethod
    def check_dtype(self, dtype: torch.dtype) -> None:
        """Raise ConfigError, with the way out, for a dtype this device cannot run."""

    @abstractmethod
    def tensor(self, data: npt.NDArray[Any], dtype: torch.dtype) -> Tensor:
        """A tensor of host data; may share the host's memory."""

    @abstractmethod
    def capture(self, fn: Callable[..., T], *static: Tensor) -> Callable[[], T] | None:
        """`fn` on tensors whose addresses stay, to be called again whenever their contents have changed.

        None where calling `fn` is as good.
        """
