"""The log on stderr, as text for a person or as one JSON object a line.

Knows no more of a record than that its `fields`, where it has some, stand for themselves.
"""

import json
import logging
import time
from typing import Any

from transduce.server.options import ServeOptions

HEARD = ("transduce.server", "transduce.access", "transduce.async_engine")
"""Whose information is of use to who runs a server; what others say of their choices is for debugging."""


def configure(options: ServeOptions) -> None:
    """Log to stderr as the options say. Libraries are heard from warnings on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines() if options.log_format == "json" else Text())
    level = logging.getLevelNamesMapping()[options.log_level.upper()]
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("transduce").setLevel(level if level != logging.INFO else logging.WARNING)
    for name in HEARD:
        logging.getLogger(name).setLevel(level)


class Text(logging.Formatter):
    """2026-01-31 12:00:00 INFO what is said key=value …"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        words = " ".join(f"{name}={_word(value)}" for name, value in _fields(record).items())
        return f"{super().formatMessage(record)}{words}"


def _word(value: object) -> str:
    """A value in one word: what a client sends cannot look like another field or another line."""
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' ="') else json.dumps(text)


class JSONLines(logging.Formatter):
    """{"time": …, "level": …, "logger": …, "message": …} and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"message": message} if (message := record.getMessage()) else {}),
            **_fields(record),
            **({"traceback": self.formatException(record.exc_info)} if record.exc_info else {}),
        }
        return json.dumps(line, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = vars(record).get("fields", {})
    return fields
