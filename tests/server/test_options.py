"""ServeOptions: what is refused and how, and where keys come from."""

from pathlib import Path
from typing import Any

import pytest

from transduce.errors import ConfigError
from transduce.server.options import ServeOptions


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"port": 65_536}, "port=65536: give a whole number from 0 to 65535"),
        ({"port": True}, "port=True"),
        ({"max_waiting": -1}, "max_waiting=-1: give a whole number >= 0"),
        ({"request_timeout": 0}, "request_timeout=0: give a number above 0"),
        ({"shutdown_timeout": float("inf")}, "shutdown_timeout=inf"),
        ({"max_body_mb": -1.0}, "max_body_mb=-1.0"),
        ({"log_format": "xml"}, "log_format='xml': give one of text, json"),
        ({"log_level": "loud"}, "give one of debug, info, warning, error"),
        ({"root_path": "api"}, "starts with /"),
        ({"served_model_name": ("", "a")}, "served_model_name"),
        ({"allowed_origins": ["*"]}, "allowed_origins"),
    ],
)
def test_what_cannot_work_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ServeOptions(**given)
    assert said in str(refused.value)


def test_keys_are_not_shown() -> None:
    assert "hidden" not in repr(ServeOptions(api_key=("hidden",)))
    with pytest.raises(ConfigError) as refused:
        ServeOptions(api_key=("hidden", " "))
    assert "hidden" not in str(refused.value)


def test_keys_come_from_options_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# team a\nalpha\n\n  beta  \r\n  # team b\n")
    assert ServeOptions().keys() == frozenset()
    assert ServeOptions(api_key=(" own ",), api_key_file=file).keys() == {"own", "alpha", "beta"}


@pytest.mark.parametrize("content", [None, b"", b"# nothing\n", b"\xff\xfe"])
def test_a_file_without_keys_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """A server that asks for no key must not come of an empty file."""
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="api_key_file"):
        ServeOptions(api_key_file=file).keys()
