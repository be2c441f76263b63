"""The terminal's side of the command line: stdin, stdout, stderr and Ctrl-C, as they are and where they fail.

Knows no command and no exit code.
"""

import errno
import io
import json
import logging
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def prepare() -> None:
    """Read stdin as UTF-8 alone, and let stdout show what is no Unicode, such as names of files, in escapes."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def lines(file: str) -> list[str]:
    """The lines of a UTF-8 file or, of -, of stdin; BadParameter where it cannot be read.

    str.splitlines would also break at characters that belong to a text.
    """
    try:
        text = _read(file)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot read {file!r}: {error}; give a UTF-8 text file") from error
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _read(file: str) -> str:
    if file != "-":
        return Path(file).read_text(encoding="utf-8-sig")
    return "" if sys.stdin is None else sys.stdin.read()


def show(result: list[str] | dict[str, Any]) -> None:
    """Lines on stdout, or a line of JSON."""
    for line in result if isinstance(result, list) else [json.dumps(result, ensure_ascii=False)]:
        typer.echo(line)


def watched(names: Iterable[str]) -> Iterable[str]:
    """The names as they come, with a bar on stderr where that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track([*names], "", console=console, transient=True, disable=not console.is_terminal)


def log(verbose: bool) -> None:
    """What the package says of its choices goes to stderr, where that is wanted."""
    if verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("transduce").setLevel(logging.INFO)


def complain(message: str) -> None:
    """One line on stderr."""
    typer.echo(f"transduce: {' '.join(message.split())}", err=True)


def discard(error: OSError) -> None:
    """Where stdout goes to a full disk, do not try again at exit what could not be written; another error is raised."""
    if error.errno not in FULL:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C in the block is KeyboardInterrupt, also where a library makes another exception of that or none.

    It is to end the process: further ones are ignored.
    """
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        ignore_interrupts()
        signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if noted:
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, before)


def ignore_interrupts() -> None:
    """For the time that the process takes to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
