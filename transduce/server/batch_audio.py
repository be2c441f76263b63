"""What a batch's line about audio posts: its fields as a form, and the clip that it names.

Owns where a clip may lie. Knows no route.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.core.checks import shown
from transduce.errors import MediaError, RequestError

WANTED = "give the path of a file in the batch file's folder, or a data: URL in base64"


def form(body: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The arguments of httpx' post. body: the route's fields, of which `file` is a path in `folder`, or a data: URL.

    Raises RequestError for another `file`, and MediaError for one that cannot be read.
    """
    fields = {name: value for name, value in body.items() if name != "file" and value is not None}
    data = dict(_field(name, value) for name, value in fields.items())
    return {"data": data, "files": {"file": _clip(body.get("file"), folder)}}


def _field(name: str, value: object) -> tuple[str, str | list[str]]:
    """As OpenAI's client writes it."""
    if isinstance(value, list):
        return f"{name}[]", [_text(each) for each in value]
    return name, _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _clip(source: object, folder: Path) -> tuple[str, bytes]:
    """Name and content."""
    if not isinstance(source, str) or not source:
        raise RequestError(f"body.file={shown(source)}: {WANTED}")
    if source.startswith("data:"):
        return "clip", _data(source)
    if "://" in source:
        raise RequestError(f"body.file={shown(source)}: nothing is fetched from elsewhere; {WANTED}")
    try:
        file = (folder / source).resolve()
        inside = file.is_relative_to(folder.resolve())
        content = file.read_bytes() if inside else b""
    except (OSError, ValueError) as error:
        raise MediaError(f"body.file={shown(source)}: {error}; {WANTED}") from error
    if not inside:
        raise RequestError(f"body.file={shown(source)} lies outside of the batch file's folder; {WANTED}")
    return file.name, content


def _data(url: str) -> bytes:
    head, _, data = url.partition(",")
    if not head.endswith(";base64"):
        raise RequestError(f"body.file={_start(url)}: {WANTED}")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise MediaError(f"body.file={_start(url)}: {error}; {WANTED}") from error


def _start(url: str, most: int = 40) -> str:
    return repr(url[:most] + ("…" if len(url) > most else ""))
