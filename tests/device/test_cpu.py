"""The CPU as a device: what the control group and the affinity mask allow."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from transduce.device import cpu
from transduce.device.cpu import CPU, usable_cores
from transduce.errors import ConfigError


@pytest.fixture
def cgroup(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The files of this process' control group, empty at first."""
    files: dict[str, list[str]] = {}
    monkeypatch.setattr(cpu, "_cgroup_words", lambda name: files.get(name, []))
    return files


def test_memory_is_the_machines(cgroup: dict[str, list[str]]) -> None:
    memory = CPU().memory()
    assert 0 < memory.free <= memory.total
    assert 0 < memory.peak <= memory.total


def test_memory_is_bounded_by_the_control_group(cgroup: dict[str, list[str]]) -> None:
    cgroup |= {"memory.max": ["1000000"], "memory.current": ["400000"]}
    memory = CPU().memory()
    assert (memory.total, memory.free) == (1000000, 600000)
    cgroup["memory.max"] = ["max"]
    assert CPU().memory().total > 1000000


def test_threads_are_bounded_by_quota_and_mask(cgroup: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert usable_cores() == 8
    cgroup["cpu.max"] = ["350000", "100000"]
    assert usable_cores() == 3
    cgroup["cpu.max"] = ["50000", "100000"]
    assert usable_cores() == 1
    cgroup["cpu.max"] = ["max", "100000"]
    assert usable_cores() == 8


def test_the_control_group_is_read_from_the_system() -> None:
    """Where there is one, cpu.max is two words; where there is none, nothing is raised."""
    assert len(cpu._cgroup_words("cpu.max")) in {0, 2}
    assert cpu._cgroup_words("no.such.file") == []


def test_float16_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"float16.*bfloat16"):
        CPU().check_dtype(torch.float16)
    CPU().check_dtype(CPU().best_dtype())


def test_a_capture_is_right_for_later_contents() -> None:
    buffer = torch.zeros(2)
    run = CPU().capture(lambda x: x + 1, buffer)
    assert run is not None
    buffer += 1
    assert run().tolist() == [2, 2]


def test_tensor_converts() -> None:
    assert CPU().tensor(np.array([1, 2]), torch.float32).dtype == torch.float32


def test_meminfo_names_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: "MemFree: 1 kB\n")
    with pytest.raises(ConfigError, match="no MemAvailable"):
        cpu._meminfo("MemAvailable")
