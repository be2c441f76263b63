"""The kernels' other tests again, on libraries that watch every access and every operation without a defined result."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.kernels import build

HERE = Path(__file__).parent

SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")

PREAMBLE = """
import sys
from pathlib import Path
from transduce.kernels import load
load.FOLDER = Path(sys.argv[1])
"""

TESTS = PREAMBLE + "import pytest; sys.exit(pytest.main(sys.argv[2:]))"

FAULT = """
extern "C" __attribute__((visibility("default"))) void fault(float* x, int n) {
    for (int i = 0; i < n; i++) x[i] = float(n << i);
}
"""

CALL = f"""{PREAMBLE}
import ctypes, torch
x = torch.zeros(int(sys.argv[2]))
load.load("portable").fault(ctypes.c_void_p(x.data_ptr()), int(sys.argv[3]))
"""


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A Python program in which the libraries of a folder, its first argument, find the sanitizers."""
    asked = [["g++", f"-print-file-name={name}"] for name in ("libasan.so", "libubsan.so")]
    runtimes = [subprocess.run(each, capture_output=True, text=True, check=True).stdout.strip() for each in asked]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own, at exit
        "OMP_NUM_THREADS": "2",
    }
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=HERE.parents[1], capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize("level", ["avx512", "portable"])
def test_no_kernel_leaves_its_bounds(level: str, tmp_path: Path) -> None:
    for each in {level, "portable"}:  # the portable one names the levels that this CPU runs
        build.compile_library(each, tmp_path / f"{each}.so", extra=SANITIZE)
    others = [path for path in sorted(HERE.glob("test_*.py")) if path.name not in {"test_build.py", "test_load.py"}]
    result = run(TESTS, tmp_path, "-q", "-x", "-s", "-p", "no:cacheprovider", *others)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.long
@pytest.mark.parametrize(("floats", "count", "said"), [(4, 4, ""), (4, 8, "heap-buffer-overflow"), (64, 40, "shift")])
def test_a_fault_is_found(floats: int, count: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fault.cpp").write_text(FAULT)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    build.compile_library("portable", tmp_path / "portable.so", extra=SANITIZE)
    result = run(CALL, tmp_path, floats, count)
    assert (result.returncode == 0) == (not said)
    assert said in result.stderr
