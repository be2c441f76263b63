"""How many pixels a picture may have, whatever it comes from."""

from transduce.errors import MediaError

PIXELS = 64_000_000
"""Of one picture at most, by default: 192 MB in RGB."""


def check(size: tuple[int, int], name: str, most: int) -> None:
    """Raise MediaError where a picture (width, height) has no pixels, or more than `most`."""
    width, height = size
    if not width * height:
        raise MediaError(f"{name} is {width} × {height} pixels; give one that has some")
    if width * height > most:
        raise MediaError(f"{name} is {width} × {height} pixels, and {most} are allowed; scale it down")
