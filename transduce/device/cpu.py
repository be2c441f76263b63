"""The CPU as a device: memory and threads as the control group and the affinity mask allow them.

Owns what is read from /proc and /sys. Knows no model, no scheduler and no kernel.
"""

import ctypes
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor

from transduce.device.base import Device, Memory
from transduce.errors import ConfigError
from transduce.kernels import tape

T = TypeVar("T")


KEPT_BYTES = 1 << 30
"""Freed memory that the allocator keeps for the next step; see `_keep_freed_memory`."""

LARGEST_KEPT = 32 << 20
"""Allocations above this always come from the system, and go back to it: the C library allows no more."""


class CPU(Device):
    """The CPU. Making one sets torch's thread count to the cores this process may use, unless it is lower already.

    It also has the C library keep freed memory.
    """

    kind = "cpu"
    torch_device = torch.device("cpu")

    def __init__(self) -> None:
        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))
        _keep_freed_memory()
        self._scratch = tape.Scratch()

    def memory(self) -> Memory:
        """/proc/meminfo, bounded by the control group's limit where there is one."""
        total, free = _meminfo("MemTotal"), _meminfo("MemAvailable")
        limit = _cgroup_integer("memory.max")
        if limit is not None:
            used = _cgroup_integer("memory.current") or 0
            total, free = min(total, limit), min(free, max(0, limit - used))
        return Memory(total, free, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

    def best_dtype(self) -> torch.dtype:
        """bfloat16 where the CPU multiplies it natively, else float32."""
        return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32

    def check_dtype(self, dtype: torch.dtype) -> None:
        """float16 is refused: CPUs compute it in float32, slower than either choice here."""
        if dtype == torch.float16:
            raise ConfigError("dtype='float16' does not run on a CPU: give 'bfloat16', 'float32' or 'auto'")

    def tensor(self, data: npt.NDArray[Any], dtype: torch.dtype) -> Tensor:
        """Shares memory where the dtypes agree."""
        return torch.from_numpy(data).to(dtype)

    def capture(self, fn: Callable[..., T], *static: Tensor) -> Callable[[], T] | None:
        """A tape of the kernels it runs, where they are most of it."""
        return tape.record(fn, static, self._scratch)


def _keep_freed_memory() -> None:
    """A step's buffers would be fresh pages of the system every time, and clearing those costs more than filling them.

    Only glibc has the settings; elsewhere nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # malloc.h
        mallopt(trim_threshold, KEPT_BYTES)
        mallopt(mmap_threshold, LARGEST_KEPT)


def usable_cores() -> int:
    """Cores this process may use: the affinity mask, or the control group's CPU quota where that is less."""
    cores = len(os.sched_getaffinity(0))
    quota = _cpu_quota()
    return max(1, min(cores, int(quota))) if quota is not None else cores


def _cpu_quota() -> float | None:
    words = _cgroup_words("cpu.max")
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    return None


def _cgroup_integer(name: str) -> int | None:
    words = _cgroup_words(name)
    return int(words[0]) if words and words[0] != "max" else None


def _cgroup_words(name: str) -> list[str]:
    """A file of this process' own (version 2) control group; empty where there is none."""
    try:
        line = Path("/proc/self/cgroup").read_text().splitlines()[-1]
        return (Path("/sys/fs/cgroup") / line.split(":", 2)[2].lstrip("/") / name).read_text().split()
    except (OSError, IndexError):
        return []


def _meminfo(field: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise ConfigError(f"/proc/meminfo has no {field}: give kv_cache_bytes or TRANSDUCE_CPU_KVCACHE_SPACE")
