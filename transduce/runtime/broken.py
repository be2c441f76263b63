"""What is said of a weight file that cannot be read. Knows no format."""

from pathlib import Path

from transduce.errors import CheckpointError


def broken(file: Path, reason: str) -> CheckpointError:
    """The error for a file of which a reader says `reason`, with the way out."""
    with file.open("rb") as opened:
        pointer = opened.read(40).startswith(b"version https://git-lfs")
    way_out = "it is a git-lfs pointer, run `git lfs pull`" if pointer else "copy or download it again"
    return CheckpointError(f"{file} cannot be read ({reason}): {way_out}")
