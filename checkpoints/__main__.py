"""`python -m checkpoints [NAME ...]`: make checkpoints and print `name<TAB>folder` for each."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from checkpoints.errors import CheckpointError
from checkpoints.store import path
from checkpoints.wheels import NAMES, SMALL, recipe_of


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 1 after one line on stderr, or 130 after Ctrl-C."""
    names = _parser().parse_args(arguments).names
    try:
        for name in names:
            recipe_of(name)  # a misspelt one is told before the others' downloads
        folders = _make(names)
    except (CheckpointError, OSError) as error:
        print(f"checkpoints: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"checkpoints: no module {error.name!r}; run: pip install '.[checkpoints]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for name, folder in zip(names, folders, strict=True):
        print(f"{name}\t{folder}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m checkpoints",
        description="Fetch small trained checkpoints and convert them to Hugging Face layout.",
        epilog=f"NAME is one of {', '.join(NAMES)}. They are kept in $TRANSDUCE_CHECKPOINTS, "
        "or ~/.cache/transduce/checkpoints.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", default=SMALL, help=f"default: {' '.join(SMALL)}")
    return parser


def _make(names: Sequence[str]) -> list[Path]:
    """The folders of `names`, with a bar on stderr for each name and one for all."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[phase]}"), console=console) as progress:
        total = progress.add_task("checkpoints", total=len(names), phase="")
        folders = []
        for name in names:
            folders.append(_make_one(name, progress))
            progress.advance(total)
    return folders


def _make_one(name: str, progress: Progress) -> Path:
    bar = progress.add_task(name, total=None, phase="")
    try:
        folder = path(name, lambda phase: progress.update(bar, phase=phase))
    except CheckpointError:
        progress.update(bar, phase="failed")
        raise
    progress.update(bar, total=1, completed=1, phase="ready")
    return folder


if __name__ == "__main__":
    sys.exit(main())
