"""Random checkpoints, and checkpoints in CTranslate2's format, made once and kept in the user's cache folder.

Its converters need an older transformers than we do, so they run in an environment of their own, made on first use.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.models import CONFIGS

PROGRAM = Path(__file__).with_name("convert_program.py")
TRANSFORMERS = "transformers==4.57.6"
"""The last that CTranslate2's BART converter works under."""


def random_checkpoint(name: str) -> Path:
    """A model of `models.CONFIGS` in transformers' layout."""
    return _made(name, "random", json.dumps(CONFIGS[name]))


def converted(checkpoint: Path, quantization: str) -> Path:
    """The checkpoint in CTranslate2's format. quantization: int8 or float32."""
    return _made(f"{checkpoint.name}-{quantization}", "ctranslate2", str(checkpoint), quantization)


def cache() -> Path:
    """Where models and the environment are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "transduce" / "benchmarks"


def _made(name: str, *arguments: str) -> Path:
    """What the program makes of the arguments; made beside its place and moved there when it is whole."""
    folder = cache() / f"{name}-{_digest(*arguments, PROGRAM.read_text(), *_requirements())}"
    if not folder.exists():
        partial = folder.with_name(f".{folder.name}.{os.getpid()}")
        subprocess.run([_python(), "-I", PROGRAM, *arguments, partial], check=True)
        partial.rename(folder)
    return folder


def _python() -> Path:
    """The environment's interpreter."""
    folder = cache() / f"environment-{_digest(*_requirements())}"
    if not (folder / "finished").exists():
        print(f"making {folder}: the converters' environment", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *_requirements()], check=True)
        (folder / "finished").touch()
    return folder / "bin" / "python"


def _requirements() -> list[str]:
    """torch is the build that is here; sentencepiece is what the T5 converter imports."""
    return [*(f"{name}=={version(name)}" for name in ("torch", "ctranslate2", "sentencepiece")), TRANSFORMERS]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
