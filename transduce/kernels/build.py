"""How the kernels are compiled: one shared library per instruction set, from the same sources.

Owns the flags. Uses the standard library alone: setup.py runs this file by its path, before torch is installed.
"""

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = Path(__file__).parent / "src"

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mavx512bf16")
_AMX = (*_AVX512, "-mamx-tile", "-mamx-int8", "-mamx-bf16")

LEVELS: dict[str, tuple[str, ...]] = {"amx": _AMX, "avx512": _AVX512, "avx2": _AVX2, "portable": ()}
"""Instruction sets, best first, and the flags that name them. Other machines than x86-64 have the last alone."""

FLAGS = (
    "-std=c++17",
    "-O3",
    "-fopenmp",  # for compiling alone: linking would load a second runtime beside torch's
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-mprefer-vector-width=512",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
)


def levels() -> list[str]:
    """The instruction sets worth compiling for on this kind of machine, best first."""
    return list(LEVELS) if platform.machine() in {"x86_64", "AMD64"} else ["portable"]


def flags(level: str) -> list[str]:
    """Compiler flags of a level."""
    x86 = platform.machine() in {"x86_64", "AMD64"}
    return [flag for flag in (*FLAGS, *LEVELS[level]) if x86 or not flag.startswith("-m")]


def sources() -> list[Path]:
    """The C++ files, sorted."""
    return sorted(SOURCES.glob("*.cpp"))


def headers() -> list[Path]:
    """The files that sources include, sorted."""
    return sorted(SOURCES.glob("*.h"))


def compile_library(level: str, out: Path, compiler: str = "g++", extra: Sequence[str] = ()) -> None:
    """Compile and link one level's library to the file `out`, `extra` goes to both.

    Raises OSError without a compiler, and CalledProcessError for one that refuses; `out` does not exist then.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    command = shlex.split(compiler)
    with TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:

        def compile_one(source: Path) -> str:
            made = f"{folder}/{source.stem}.o"
            subprocess.run([*command, *flags(level), *extra, "-fPIC", "-c", source, "-o", made], check=True)
            return made

        objects = list(pool.map(compile_one, sources()))
        subprocess.run([*command, *extra, "-shared", *objects, "-o", out], check=True)
