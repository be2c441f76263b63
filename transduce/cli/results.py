"""A folder of transcriptions: files in the formats asked for, and a list of the recordings that are finished.

Owns what is there after a run that was cut short: whole files, and in the list only what has all of them.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from transduce.cli.recordings import Recording, named
from transduce.speech import subtitles
from transduce.speech.subtitles import Layout

if TYPE_CHECKING:
    from transduce.speech.transcription import Transcription

LIST = ".transduce.jsonl"
"""A line for each recording whose results are all there: its path, how it was then, and their name."""

FORMATS = ("txt", "srt", "vtt", "tsv", "json")


@dataclass(frozen=True, slots=True)
class Style:
    """What results look like. formats: of FORMATS. task: as the JSON names it. words: whether it lists them too."""

    formats: Sequence[str]
    layout: Layout
    task: str
    words: bool

    def rendered(self, form: str, said: "Transcription") -> str:
        """A transcription in one of the formats."""
        match form:
            case "txt":
                return subtitles.txt(said.segments)
            case "srt":
                return subtitles.srt(said.segments, self.layout)
            case "vtt":
                return subtitles.vtt(said.segments, self.layout)
            case "tsv":
                return subtitles.tsv(said.segments)
            case _:
                return self._json(said)

    def _json(self, said: "Transcription") -> str:
        listed = ("segment", "word") if self.words else ("segment",)
        answer = subtitles.verbose_json(
            said.segments, task=self.task, language=said.language or "", duration=said.duration, granularities=listed
        )
        return f"{answer}\n"


class Results:
    """The folder's, which is made if need be. Raises BadParameter where that fails, or its list cannot be read."""

    def __init__(self, folder: Path, style: Style, recordings: Sequence[Recording]) -> None:
        self._folder = folder
        self._style = style
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._listed = _listed(folder / LIST)
            known = {source: line["name"] for source, line in self._listed.items()}
        except OSError as error:
            raise typer.BadParameter(f"cannot write to {str(folder)!r}: {error.strerror}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise typer.BadParameter(f"{str(folder / LIST)!r} is no list of results; delete it") from error
        self._names = named(recordings, known)

    def finished(self, source: str) -> bool:
        """Whether a source is as it was when its results were written, and they are there in all formats."""
        line = self._listed.get(source)
        return line is not None and line == self._line(source) and all(path.exists() for path in self._paths(source))

    def write(self, source: str, said: "Transcription") -> None:
        """Write a source's results. Raises OSError."""
        line = self._line(source)
        for path, form in zip(self._paths(source), self._style.formats, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, self._style.rendered(form, said))
        with (self._folder / LIST).open("a", encoding="ascii") as file:
            file.write(json.dumps(line) + "\n")

    def _paths(self, source: str) -> list[Path]:
        return [self._folder / f"{self._names[source]}.{form}" for form in self._style.formats]

    def _line(self, source: str) -> dict[str, Any] | None:
        """What the list says of a source as it is; None where it is not there."""
        try:
            about = Path(source).stat()
        except OSError:
            return None
        return {"source": source, "bytes": about.st_size, "modified": about.st_mtime_ns, "name": self._names[source]}


def _listed(file: Path) -> dict[str, dict[str, Any]]:
    """The list's lines by their sources, without the rest of a line that a run did not end."""
    text = file.read_text(encoding="ascii") if file.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        _replace(file, whole)
    return {line["source"]: line for line in map(json.loads, whole.splitlines())}


def _replace(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    part = path.with_name(f".{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
