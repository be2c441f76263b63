"""Compiling the kernels, and the wheel that carries them; with a compiler, an old one and none."""

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import pytest

from transduce.kernels import build

ROOT = Path(__file__).parents[2]

OLD = """\
#!/bin/sh
case "$*" in *-mamx-tile*) echo 'unrecognized command-line option' >&2; exit 1;; esac
exec g++ "$@"
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds all the kernels there are: one with a parallel region."""
    source = tmp_path / "src" / "one.cpp"
    source.parent.mkdir()
    source.write_text(
        'extern "C" void one(int* x) {\n#pragma omp parallel for\nfor (int i = 0; i < 9; i++) x[i] = i; }'
    )
    monkeypatch.setattr(build, "SOURCES", source.parent)
    return source.parent


def test_a_library_does_not_ask_for_an_openmp_runtime(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "lib" / "portable.so"
    build.compile_library("portable", out)
    assert b"GOMP_parallel" in out.read_bytes()
    assert b"libgomp" not in out.read_bytes()


def test_a_kernel_that_does_not_compile_leaves_no_old_library(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "portable.so"
    out.touch()
    (sources / "two.cpp").write_text("nonsense")
    with pytest.raises(subprocess.CalledProcessError):
        build.compile_library("portable", out)
    assert not out.exists()
    assert "two.cpp" in capfd.readouterr().err


def test_no_compiler_leaves_no_old_library(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "portable.so"
    out.touch()
    with pytest.raises(FileNotFoundError):
        build.compile_library("portable", out, compiler="no-such-compiler")
    assert not out.exists()


def test_levels_are_cumulative() -> None:
    flags = [set(build.LEVELS[level]) for level in build.LEVELS]
    assert all(better > worse for better, worse in pairwise(flags))


def test_other_machines_have_the_portable_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert build.levels() == ["portable"]
    assert not [flag for flag in build.flags("portable") if flag.startswith("-m")]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository as far as a wheel needs it, with one source to compile and an old library."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "transduce", tmp_path / "transduce", ignore=shutil.ignore_patterns("lib", "__pycache__"))
    kernels = tmp_path / "transduce" / "kernels"
    for source in kernels.glob("src/*.cpp"):
        if source.name != "cpu.cpp":
            source.unlink()
    (kernels / "lib").mkdir()
    (kernels / "lib" / "amx.so").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("compiler", "built"), [("g++", 4), ("old", 3), ("no-such-compiler", 0)], ids=["new", "old", "none"]
)
def test_a_wheel_carries_the_levels_that_could_be_built(clone: Path, compiler: str, built: int) -> None:
    old = clone / "old"
    old.write_text(OLD)
    old.chmod(0o755)
    environment = os.environ | {"CXX": compiler.replace("old", str(old))}
    pip = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", clone, clone], env=environment, check=True, capture_output=True)
    (wheel,) = clone.glob("*.whl")
    assert wheel.stem.split("-")[2:4] == ["py3", "none"]
    assert wheel.stem.split("-")[4].startswith("linux_")
    folder = "transduce/kernels/lib/"
    carried = [name.removeprefix(folder) for name in ZipFile(wheel).namelist() if name.startswith(folder)]
    wanted = [f"{level}.so" for level in build.levels()]
    assert sorted(carried) == sorted(wanted[len(wanted) - built :])
