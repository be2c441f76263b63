"""Finding and loading the compiled kernels for this CPU, into the OpenMP runtime that torch has loaded.

Owns which instruction set is used. Knows no kernel: their signatures are declared by the modules that call them.
"""

import ctypes
import logging
from functools import cache
from pathlib import Path

import torch

from transduce.config import kernels_level
from transduce.errors import ConfigError
from transduce.kernels.build import LEVELS

FOLDER = Path(__file__).parent / "lib"

RUNTIMES = ("libgomp", "libiomp5", "libomp")
"""What OpenMP runtimes' file names begin with."""

log = logging.getLogger(__name__)


@cache
def library() -> ctypes.CDLL | None:
    """The kernels at the best level this CPU runs, or at TRANSDUCE_KERNELS; None where there are none, or for "off".

    Raises ConfigError for a level that does not exist, was not built or that the CPU does not run.
    """
    wanted = kernels_level()
    if wanted == "off":
        return None
    runnable = usable_levels()
    if wanted is not None and wanted not in runnable:
        raise ConfigError(f"TRANSDUCE_KERNELS={wanted!r}: this machine has {', '.join((*runnable, 'off'))}")
    return load(wanted or runnable[0]) if runnable else None


@cache
def usable_levels() -> tuple[str, ...]:
    """Levels that were built and that this CPU runs, best first. Where there are none, the log says why, once."""
    try:
        best = load("portable").td_best_level()
    except OSError as error:
        log.warning(
            "the CPU kernels are missing (%s): attention and linear layers run on torch, slower. To have them, install "
            "g++ and then Transduce anew; TRANSDUCE_KERNELS=off silences this",
            error,
        )
        return ()
    return tuple(level for level in list(LEVELS)[best:] if path(level).exists())


def path(level: str) -> Path:
    """Where a level's library lies when it was built."""
    return FOLDER / f"{level}.so"


@cache
def load(level: str) -> ctypes.CDLL:
    """One level's library, its OpenMP symbols resolved to torch's runtime; OSError where that cannot be."""
    ctypes.CDLL(str(openmp_runtime()), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path(level)))


def openmp_runtime() -> Path:
    """The OpenMP runtime that torch runs on: its own, where other packages have brought theirs; OSError without any."""
    mapped = {Path(line.split(maxsplit=5)[-1]) for line in Path("/proc/self/maps").read_text().splitlines()}
    runtimes = [file for file in mapped if file.name.startswith(RUNTIMES)]
    if not runtimes:
        raise OSError("torch has loaded no OpenMP runtime")
    torchs = Path(torch.__file__).resolve().parent  # as the maps name it, where an environment is a link
    return max(runtimes, key=lambda file: file.is_relative_to(torchs))
