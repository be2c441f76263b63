"""Which files a command's inputs stand for, and what the results of each are named.

Knows no model and writes nothing.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import typer


@dataclass(frozen=True, slots=True)
class Kind:
    """What a command reads. suffixes: of its files in a folder; one that is named itself may have any."""

    name: str
    suffixes: frozenset[str]


AUDIO = Kind(
    "audio files",
    frozenset(
        {".3gp", ".aac", ".ac3", ".aif", ".aifc", ".aiff", ".amr", ".au", ".avi", ".caf", ".flac", ".flv", ".m4a"}
        | {".m4b", ".m4v", ".mka", ".mkv", ".mov", ".mp2", ".mp3", ".mp4", ".mpeg", ".mpg", ".mpga", ".oga", ".ogg"}
        | {".ogv", ".opus", ".wav", ".webm", ".wma", ".wmv"}
    ),
)
"""Files that are audio, or have some."""

DOCUMENTS = Kind(
    "images and PDFs",
    frozenset(
        {".avif", ".bmp", ".gif", ".j2k", ".jfif", ".jp2", ".jpeg", ".jpg", ".jpx", ".pbm", ".pdf", ".pgm", ".png"}
        | {".pnm", ".ppm", ".tif", ".tiff", ".webp"}
    ),
)
"""What `media.image` has pages of."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file. path: as it was given, or the folder that was given, and the way from there. within: that way alone."""

    path: str
    within: Path

    @property
    def source(self) -> str:
        """One file's only name."""
        return os.path.realpath(self.path)


def find(given: Sequence[str], kind: Kind) -> list[Input]:
    """Files as they are; of folders, at any depth, those of the kind, sorted, without hidden ones.

    Raises BadParameter for a folder that cannot be read, or that has none.
    """
    return [found for each in given for found in _found(each, kind)]


def _found(given: str, kind: Kind) -> Sequence[Input]:
    if not Path(given).is_dir():
        return [Input(given, Path(Path(given).name))]
    paths = sorted(path for path in _below(given) if path.suffix.lower() in kind.suffixes)
    if not paths:
        raise typer.BadParameter(f"{given!r}: there are no {kind.name} in this folder; name a file to have it read")
    return [Input(str(path), path.relative_to(given)) for path in paths]


def _below(folder: str) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise typer.BadParameter(f"cannot read {error.filename!r}: {error.strerror}") from error

    for at, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(at, name) for name in files if not name.startswith("."))


def named(inputs: Sequence[Input], known: Mapping[str, str]) -> dict[str, str]:
    """A name for the results of each source, such as talks/one: its way without the suffix, if only one has that.

    Others keep the suffix, and get a number if that is not enough. known: names that sources have from earlier runs.
    """
    ways = {each.source: each.within for each in inputs}
    shared = Counter(_folded(way.with_suffix("")) for way in ways.values())
    names, taken = dict(known), {*map(_folded, known.values())}
    for source, way in ways.items():
        if source not in names:
            bare = [way.with_suffix("")] if shared[_folded(way.with_suffix(""))] == 1 else []
            numbered = (way.with_name(f"{way.name}-{number}") for number in count(2))
            name = next(each for each in chain(bare, [way], numbered) if _folded(each) not in taken)
            names[source] = str(name)
            taken.add(_folded(name))
    return {source: names[source] for source in ways}


def _folded(name: Path | str) -> str:
    """Names that some file systems hold for one are the same."""
    return str(name).casefold()
