"""What a read-only root does to a process: an audit hook that refuses writing but below the folders in $WRITABLE.

Installed into an environment beside a .pth file that imports it, so that every process has it.
"""

import errno
import os
import sys
from typing import Any

WRITABLE = tuple(os.path.realpath(folder) for folder in os.environ.get("WRITABLE", "/").split(":"))
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGING = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod"}


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in CHANGING or (event == "open" and arguments[2] & WRITING):
        path = arguments[0]
        if isinstance(path, str | bytes | os.PathLike) and not inside(os.fsdecode(path)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def inside(path: str) -> bool:
    whole = os.path.realpath(path)
    return any(whole == folder or whole.startswith(folder.rstrip("/") + "/") for folder in WRITABLE)


sys.addaudithook(refuse)
