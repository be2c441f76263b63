"""URLs that need no network: data:, which hold their content, and file:, under a folder that was allowed.

Owns how both are read, and never more than the bytes that are wanted. Knows no network and no kind of media.
"""

import base64
import binascii
import os
import re
import stat
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from transduce.errors import MediaError

_SHOWN = 100  # characters of a URL in a message: a data: URL may have millions


def shown(url: str) -> str:
    """A URL as a message names it: without a password and without its query, which may hold a signature."""
    public = re.sub(r"//[^/]*@", "//", url[: 4 * _SHOWN].partition("?")[0])
    return repr(public if len(public) <= _SHOWN else public[:_SHOWN] + "…")


def too_large(url: str, most: int) -> MediaError:
    """What to raise for more than `most` bytes."""
    return MediaError(f"{shown(url)} holds more than {most} bytes; send a smaller file")


def read_data(url: str, most: int) -> bytes:
    """The content of a data: URL, in base64 or percent-encoded; its media type is not looked at.

    Raises MediaError where it is none, or decodes to more than `most` bytes, which is found before decoding base64.
    """
    head, comma, text = url.partition(",")
    if not comma:
        raise MediaError(f"{shown(url)} has no comma; write data:image/png;base64,… with the file's bytes in base64")
    if len(text) > 4 * most + _SHOWN:  # neither kind of coding, nor both, takes more
        raise too_large(url, most)
    content = unquote_to_bytes(text)
    if head.rstrip().lower().endswith(";base64"):
        content = _from_base64(url, content, most)
    if len(content) > most:
        raise too_large(url, most)
    return content


def _from_base64(url: str, text: bytes, most: int) -> bytes:
    digits = b"".join(text.split()).rstrip(b"=")
    if len(digits) * 3 // 4 > most:
        raise too_large(url, most)
    try:
        return base64.b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
    except binascii.Error as error:
        raise MediaError(f"{shown(url)} is no base64: {error}; encode the file's bytes") from error


def read_file(url: str, folder: Path | None, most: int) -> bytes:
    """The content of a file: URL that lies in `folder` once symbolic links are followed.

    Raises MediaError for any other, in the same words whether there is such a file or not; for what is no plain file;
    and for more than `most` bytes.
    """
    if folder is None:
        raise MediaError(f"{shown(url)}: file:// URLs are not read here; send the file as a data: URL")
    parts = urlsplit(url)
    try:
        if parts.netloc not in ("", "localhost"):
            raise OSError("a file of another host")
        path = Path(unquote(parts.path)).resolve(strict=True)
        if not path.is_relative_to(folder.resolve()):
            raise OSError("outside")
        content = _content(path, most + 1)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle; ValueError: a null byte
        raise MediaError(f"{shown(url)} is no file that may be read; give one in the allowed folder") from error
    if len(content) > most:
        raise too_large(url, most)
    return content


def _content(path: Path, most: int) -> bytes:
    """No link that was put there meanwhile is followed, and no pipe is waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("no plain file")
        return file.read(most)
