"""The pages of a PDF as pictures, drawn by PDFium.

Owns PDFium, which one thread at a time may call.
Knows no other kind of document.
"""

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

import PIL.Image

from transduce.errors import MediaError
from transduce.media.pixels import check

_PDFIUM = threading.Lock()
_POINT = 1 / 72  # inch, which a page is measured in


def is_pdf(file: BinaryIO) -> bool:
    """Whether a file says so in its first bytes. Leaves it at its beginning."""
    file.seek(0)
    head = file.read(64)
    file.seek(0)
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"%PDF-")


def pages(content: bytes, name: str, most: int, most_pages: int, dpi: int) -> Iterator[PIL.Image.Image | MediaError]:
    """Each page in RGB at `dpi`, or why it cannot be drawn; forms are drawn as they are filled in.

    Raises MediaError for a document that cannot be read at all or has more than `most_pages`, and where pypdfium2 is
    not installed.
    """
    pdfium = _library(name)
    with _PDFIUM:
        document = _opened(pdfium, content, name)
        found = len(document)
    try:
        if found > most_pages:
            raise MediaError(f"{name} has {found} pages, and {most_pages} are allowed; split it")
        for index in range(found):
            yield _page(pdfium, document, index, f"page {index + 1} of {name}", most, dpi * _POINT)
    finally:
        with _PDFIUM:
            document.close()


def _library(name: str) -> Any:
    try:
        import pypdfium2  # type: ignore[import-untyped]
    except ImportError as error:
        raise MediaError(
            f'{name} is a PDF, and {error.name} is not installed; pip install "transduce[ocr]", or give images'
        ) from error
    return pypdfium2


def _opened(pdfium: Any, content: bytes, name: str) -> Any:
    try:
        document = pdfium.PdfDocument(content)
        document.init_forms()
        return document
    except pdfium.PdfiumError as error:
        raise MediaError(
            f"cannot read {name}: {str(error).rstrip('.')}; give a complete PDF without a password"
        ) from error


def _page(pdfium: Any, document: Any, index: int, name: str, most: int, scale: float) -> PIL.Image.Image | MediaError:
    try:
        with _PDFIUM:
            page = document[index]
            try:
                width, height = page.get_size()
                check((math.ceil(width * scale), math.ceil(height * scale)), name, most)
                with contextlib.closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
                    picture: PIL.Image.Image = bitmap.to_pil()
                    return picture.convert("RGB").copy()  # of its own: the bitmap's memory goes
            finally:
                page.close()
    except MediaError as error:
        return error
    except pdfium.PdfiumError as error:
        return MediaError(f"cannot draw {name}: {str(error).rstrip('.')}; leave it out")
