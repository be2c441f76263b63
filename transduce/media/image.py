"""Images as users give them to upright RGB pictures, and documents to the pictures of their pages.

Owns decoding by Pillow, what becomes of colours, depth and transparency, and the bound on pixels, which is checked
before any is decoded. Knows no model, and opens nothing but the file or bytes it was given: the formats are those
whose decoder Pillow has itself, so that none starts another program.
"""

import io
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import PIL.Image
from PIL import ImageOps

from transduce.errors import MediaError
from transduce.media import pdf
from transduce.media.pixels import PIXELS, check

Picture = PIL.Image.Image
Image = str | os.PathLike[str] | bytes | Picture | npt.NDArray[Any]

PAGES = 1_000
"""Of one document at most, by default."""

DPI = 200
"""Dots per inch at which the pages of a PDF are drawn, by default: an A4 page becomes 1654 × 2339 pixels."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "AVIF", "JPEG2000")

_FULL_SCALE = {np.dtype(np.uint16): 65_535} | {np.dtype(kind): 1 for kind in (np.float16, np.float32, np.float64)}

# What Pillow's decoders raise over damaged files, besides what says so.
_DAMAGED = (
    OSError,
    RuntimeError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    OverflowError,
    struct.error,
    PIL.Image.DecompressionBombError,
    PIL.Image.DecompressionBombWarning,  # where warnings are made errors
)


def load(image: Image, most: int = PIXELS) -> Picture:
    """Decode to a picture in RGB, of its own, turned as its EXIF orientation says.

    image: a path, the bytes of a file in one of FORMATS (whatever its name says), a Pillow image, or an array
    [height, width], [height, width, 1], [height, width, 3] (RGB) or [height, width, 4] (RGBA) of uint8, uint16, or
    floats from 0 to 1. What is transparent shows white behind it. Sixteen bits are scaled to eight. Of an animation the
    first frame counts, of a document the first page.
    most: pixels. Pillow's own bound, `PIL.Image.MAX_IMAGE_PIXELS`, holds besides.

    Raises MediaError where no picture can be had: a missing, empty, damaged or shortened file, another format,
    no pixels or more than `most`, values whose range is not known.
    """
    name = _name(image)
    with _refusing(name):
        match image:
            case PIL.Image.Image():
                return _upright(image, name, most)
            case np.ndarray():
                return _upright(_from_array(image, name, most), name, most)
            case _:
                with _file(image) as file, _opened(file, name) as picture:
                    return _upright(picture, name, most)


def pages(
    document: Image, most: int = PIXELS, most_pages: int = PAGES, dpi: int = DPI
) -> Iterator[Picture | MediaError]:
    """The pages of a PDF or of a TIFF, in order; anything else is one page.

    A page that cannot be read is a MediaError in its place, and the others are there all the same. A TIFF names the
    next page in each: those behind a damaged name are lost, and the error for the first of them is the last item.
    most: pixels of one page. dpi: what a PDF's pages are drawn at; it needs the extra `ocr`.

    Raises MediaError as `load` does for the whole document, or on the way where there are more than `most_pages`;
    ConfigError for a PDF without pypdfium2.
    """
    if isinstance(document, PIL.Image.Image | np.ndarray):
        yield load(document, most)
        return
    name = _name(document)
    with _refusing(name), _file(document) as file:
        if pdf.is_pdf(file):
            yield from pdf.pages(file.read(), name, most, most_pages, dpi)
            return
        with _opened(file, name) as picture:
            yield from _frames(picture, name, most, most_pages)


def _name(image: object) -> str:
    match image:
        case str() | os.PathLike():
            return f"image file {os.fspath(image)!r}"
        case bytes():
            return f"image of {len(image)} bytes"
        case _:
            return "image"


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Turn what Pillow and the file system raise into a MediaError about `name`."""
    try:
        yield
    except MediaError:
        raise
    except _DAMAGED as error:
        raise MediaError(f"cannot read {name}: {_reason(error)}; {_way_out(name, error)}") from error


def _reason(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) else None  # Pillow's own OSErrors have a text alone
    return (said or str(error) or type(error).__name__).rstrip(".")


def _way_out(name: str, error: BaseException) -> str:
    match error:
        case FileNotFoundError() if "://" in name:
            return "download it first"
        case FileNotFoundError():
            return "check the path"
        case IsADirectoryError():
            return "give a file"
        case PermissionError():
            return "make it readable"
        case PIL.Image.DecompressionBombError() | PIL.Image.DecompressionBombWarning():
            return "scale it down"
        case _:
            return "give a complete image file"


@contextmanager
def _file(source: object) -> Iterator[BinaryIO]:
    match source:
        case bytes():
            yield io.BytesIO(source)
        case str() | os.PathLike():
            with Path(source).open("rb") as file:
                yield file
        case _:
            kind = type(source).__name__
            raise MediaError(f"image of type {kind}: give a path, the bytes of a file, a Pillow image or an array")


def _opened(file: BinaryIO, name: str) -> PIL.Image.Image:
    """What a file's head says; no pixel is decoded yet."""
    if not file.read(1):
        raise MediaError(f"{name} is empty; give a file that holds an image")
    if pdf.is_pdf(file):
        raise MediaError(f"{name} is a PDF, which has pages; give one of them as an image")
    try:
        return PIL.Image.open(file, formats=FORMATS)
    except PIL.UnidentifiedImageError as error:
        raise MediaError(
            f"{name} is none that can be read; give a {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        ) from error


def _frames(picture: PIL.Image.Image, name: str, most: int, most_pages: int) -> Iterator[Picture | MediaError]:
    if picture.format != "TIFF":  # what follows in other formats is an animation, a preview or another view
        yield _upright(picture, name, most)
        return
    for index in count():
        page = _frame(picture, index, f"page {index + 1} of {name}", most)
        if page is None:
            return
        if index == most_pages:
            raise MediaError(f"{name} has more than {most_pages} pages; split it")
        yield page


def _frame(picture: PIL.Image.Image, index: int, name: str, most: int) -> Picture | MediaError | None:
    """None: there are only `index` pages."""
    try:
        with _refusing(name):
            try:
                picture.seek(index)
            except EOFError:
                return None
            return _upright(picture, name, most)
    except MediaError as error:
        return error


def _upright(picture: PIL.Image.Image, name: str, most: int) -> Picture:
    check(picture.size, name, most)
    upright = ImageOps.exif_transpose(picture)
    if upright.mode == "I":  # 32 bits, in which Pillow has what a file of 16 says
        return _upright(PIL.Image.fromarray(_sixteen_bits(np.asarray(upright), name)), name, most)
    if upright.mode.startswith("I;16"):
        return PIL.Image.fromarray(_eight_bits(np.asarray(upright), name)).convert("RGB")
    if upright.mode == "F":
        raise MediaError(f"{name} has floats for pixels, whose range is not known; give 8 or 16 bits")
    if not upright.has_transparency_data:
        return upright.convert("RGB")
    white = PIL.Image.new("RGBA", upright.size, "white")
    return PIL.Image.alpha_composite(white, upright.convert("RGBA")).convert("RGB")


def _from_array(values: npt.NDArray[Any], name: str, most: int) -> Picture:
    shape = values.shape
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise MediaError(f"{name} of shape {shape}: give [height, width] or [height, width, 3]")
    check((shape[1], shape[0]), name, most)
    single = values[:, :, 0] if shape[2:] == (1,) else values
    return PIL.Image.fromarray(_eight_bits(single, name))


def _sixteen_bits(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.uint16]:
    lowest, highest = values.min(), values.max()
    if lowest < 0 or highest > np.iinfo(np.uint16).max:
        raise MediaError(f"{name} has pixels from {lowest} to {highest}, whose range is not known; give 8 or 16 bits")
    return values.astype(np.uint16)


def _eight_bits(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.uint8]:
    """Values [height, width] or [height, width, channels] of any type that has a known range, from 0 to 255.

    Pillow's conversion of sixteen bits would make everything above 255 white.
    """
    if values.dtype == np.uint8:
        return values
    full = _FULL_SCALE.get(values.dtype.newbyteorder("="))
    if full is None:
        raise MediaError(
            f"{name} of {values.dtype}, whose range is not known: give uint8, uint16 or floats from 0 to 1"
        )
    lowest, highest = values.min(), values.max()
    if not (lowest >= 0 and highest <= full):  # NaN is neither
        raise MediaError(f"{name} has values from {lowest} to {highest}: give 0 to {full} as {values.dtype}, or uint8")
    scaled: npt.NDArray[np.uint8] = np.rint(values * (255 / full)).astype(np.uint8)
    return scaled
