"""A folder of results: files in the formats asked for, and a list of the inputs that are finished.

Owns the flags that ask for one, and what is there after a run that was cut short: whole files, and in the list only
what has all of them. Knows no format.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import typer

from transduce.cli import answering, terminal
from transduce.cli.inputs import Input, named
from transduce.cli.options import option

T = TypeVar("T")

OutputDir = Annotated[Path | None, option("Folder to write results to; a further run goes on where one stopped.")]

LIST = ".transduce.jsonl"
"""A line for each input whose results are all there: its path, how it was then, and their name."""


def formats(context: typer.Context, known: Sequence[str]) -> Sequence[str]:
    """Those that --format asks for; all if it does not.

    Raises BadParameter for others, and where results are to be printed and written, or neither is what is asked.
    """
    asked, writes = context.params["formats"], context.params["output_dir"] is not None
    if asked and not writes:
        raise typer.BadParameter("--format is for files: give --output-dir too")
    if writes and context.params["as_json"]:
        raise typer.BadParameter("--json prints, and --output-dir writes: give --format json instead of --json")
    chosen = known if asked is None else tuple(dict.fromkeys(each.strip() for each in asked.split(",")))
    if unknown := next((each for each in chosen if each not in known), None):
        raise typer.BadParameter(f"--format {unknown!r}: give some of {','.join(known)}")
    return chosen


class Results(Generic[T]):
    """The folder's, which is made if need be. rendered(result, format): the text of a file.

    Raises BadParameter where that fails, or its list cannot be read.
    """

    def __init__(
        self, folder: Path, formats: Sequence[str], rendered: Callable[[T, str], str], inputs: Sequence[Input]
    ) -> None:
        self._folder = folder
        self._formats = formats
        self._rendered = rendered
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._listed = _listed(folder / LIST)
            known = {source: line["name"] for source, line in self._listed.items()}
        except FileExistsError as error:
            raise typer.BadParameter(f"--output-dir {str(folder)!r} is a file; give a folder") from error
        except OSError as error:
            raise typer.BadParameter(f"cannot write to {str(folder)!r}: {error.strerror}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise typer.BadParameter(f"{str(folder / LIST)!r} is no list of results; delete it") from error
        self._files = {each.source: each for each in inputs}
        self._names = named(inputs, known)

    def fill(self, done: str, make: Callable[[Sequence[Input]], Mapping[int, Sequence[str]]]) -> None:
        """Have the results made that are not there, count them on stdout, and exit 1 if some failed.

        done: what happened to the inputs that did not. make: given inputs, writes what becomes of them, and tells by
        their places what went wrong.
        """
        todo = [each for source, each in self._files.items() if not self._finished(source)]
        errors = make(todo) if todo else {}
        failed = sum(map(bool, errors.values()))
        before = f", {len(self._files) - len(todo)} from an earlier run" if len(todo) < len(self._files) else ""
        terminal.show([f"{self._folder}: {len(todo) - failed} {done}, {failed} failed{before}"])
        answering.finish((each.path, error) for place, each in enumerate(todo) for error in errors[place])

    def _finished(self, source: str) -> bool:
        """Whether a source is as it was when its results were written, and they are there in all formats."""
        line = self._listed.get(source)
        return line is not None and line == self._line(source) and all(path.exists() for path in self._paths(source))

    def write(self, source: str, result: T, whole: bool = True) -> list[str]:
        """Write a source's results; why not, if that fails. whole: else a further run makes them again."""
        try:
            self._write(source, result, whole)
        except OSError as error:
            return [f"cannot write its results: {error.strerror}"]
        return []

    def _write(self, source: str, result: T, whole: bool) -> None:
        line = self._line(source)
        for path, form in zip(self._paths(source), self._formats, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, self._rendered(result, form))
        if whole:
            with (self._folder / LIST).open("a", encoding="ascii") as file:
                file.write(json.dumps(line) + "\n")

    def _paths(self, source: str) -> list[Path]:
        return [self._folder / f"{self._names[source]}.{form}" for form in self._formats]

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
