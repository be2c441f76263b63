"""Which kernels are loaded, and into what."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from transduce.errors import ConfigError
from transduce.kernels import load

FLAGS = {
    "amx": {"amx_tile", "amx_int8", "amx_bf16", "avx512_bf16"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16"},
    "avx2": {"avx2", "fma"},
    "portable": set[str](),
}
"""What /proc/cpuinfo calls the instructions of each level, best first."""

PROGRAM = """
import {first}
from transduce.kernels import load
assert load.library() is not None
import torch
torch.ones(1 << 20).sum()
print(load.openmp_runtime())
print(open("/proc/self/maps").read())
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing decided, before and after; no wish of the user's."""
    monkeypatch.delenv("TRANSDUCE_KERNELS", raising=False)
    for each in (load.library, load.usable_levels, load.load):
        each.cache_clear()
    yield
    for each in (load.library, load.usable_levels, load.load):
        each.cache_clear()


def run(program: str) -> list[str]:
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stderr == ""
    return finished.stdout.splitlines()


def test_the_best_level_is_what_the_cpu_has() -> None:
    (flags,) = {line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")}
    wanted = [level for level, needed in FLAGS.items() if needed <= set(flags.split())]
    assert load.usable_levels() == tuple(wanted), "is there a C++ compiler, and did scripts/setup run?"


def test_the_best_level_is_taken_unless_another_is_wished(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = load.usable_levels()
    best = load.library()
    assert best is load.load(levels[0])
    load.library.cache_clear()
    monkeypatch.setenv("TRANSDUCE_KERNELS", levels[-1])
    assert load.library() is load.load(levels[-1])


def test_off_is_quiet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("TRANSDUCE_KERNELS", "off")
    monkeypatch.setattr(load, "FOLDER", Path("nowhere"))
    assert load.library() is None
    assert not caplog.records


def test_a_level_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_KERNELS", "mmx")
    with pytest.raises(ConfigError, match=r"TRANSDUCE_KERNELS='mmx': this machine has .*portable, off"):
        load.library()


def test_without_kernels_the_log_says_once_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(load, "FOLDER", tmp_path)
    with caplog.at_level(logging.WARNING):
        assert load.library() is None
        assert load.library() is None
        assert load.usable_levels() == ()
    (record,) = caplog.records
    assert "slower" in record.getMessage()
    assert "install g++" in record.getMessage()


def test_a_library_that_does_not_load_is_as_good_as_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(load, "FOLDER", tmp_path)
    (tmp_path / "portable.so").write_text("no library")
    assert load.library() is None
    assert str(tmp_path) in caplog.text


def test_kernels_and_torch_share_one_openmp_runtime() -> None:
    runtime, *maps = run(PROGRAM.format(first="sys"))
    assert {line.split()[-1] for line in maps if "libgomp" in line or "libomp" in line or "libiomp" in line} == {
        runtime
    }
    assert any(line.endswith(f"{load.usable_levels()[0]}.so") for line in maps)


def test_another_packages_openmp_runtime_is_left_alone() -> None:
    runtime, *maps = run(PROGRAM.format(first="sentencepiece"))
    assert len({line.split()[-1] for line in maps if "libgomp" in line}) == 2
    assert "/torch/lib/" in runtime
