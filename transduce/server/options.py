"""ServeOptions: every argument of the server that is none of the engine's, with its default.

Owns what their values may be, and reads the file of keys. Knows no HTTP and no engine.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from transduce.errors import ConfigError

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

MB = 1_000_000
FORM = 1 * MB
"""What a form may hold beside its file."""

_CHOICES = {"log_format": ("text", "json"), "log_level": ("debug", "info", "warning", "error")}
_POSITIVE = ("request_timeout", "shutdown_timeout", "max_body_mb", "max_file_mb", "max_audio_seconds")
_LISTS = ("served_model_name", "api_key", "allowed_origins")
_LAST_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where and how to serve.

    host, port: the address; port 0 is any free one. root_path: what a proxy strips from paths. served_model_name:
    the names that requests may give and of which the first is reported; none: the model as it was given.
    api_key, api_key_file: keys of which a request must carry one, the file holding one a line; none: no key is asked
    for. allowed_origins: web pages that may call, as CORS has it.
    max_waiting: prompts that may wait because others run, 0: none; then new requests are refused with 429.
    priority: whether requests may have one, by which they pass others; without, another than 0 is refused.
    request_timeout: seconds that one prompt may take. shutdown_timeout: seconds that running requests get to finish.
    max_body_mb, max_file_mb, max_audio_seconds: the largest body, uploaded file and its length; more is a 413.
    log_format, log_level: of the log on stderr. otlp_traces_endpoint: URL that OpenTelemetry traces go to.
    disable_playground: no page at /.

    Raises ConfigError for a value that cannot work, naming it and the way out.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    root_path: str = ""
    served_model_name: tuple[str, ...] = ()
    api_key: tuple[str, ...] = field(default=(), repr=False)
    api_key_file: Path | None = None
    allowed_origins: tuple[str, ...] = ()
    max_waiting: int = 256
    priority: bool = False
    request_timeout: float = 600.0
    shutdown_timeout: float = 25.0
    max_body_mb: float = 8.0
    max_file_mb: float = 64.0
    max_audio_seconds: float = 600.0
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    otlp_traces_endpoint: str | None = None
    disable_playground: bool = False

    def __post_init__(self) -> None:
        for name in _LISTS:
            _texts(name, getattr(self, name))
        for name in _POSITIVE:
            _positive(name, getattr(self, name))
        for name, choices in _CHOICES.items():
            _among(name, getattr(self, name), choices)
        _whole("port", self.port, 0, _LAST_PORT)
        _whole("max_waiting", self.max_waiting, 0)
        if self.root_path and not self.root_path.startswith("/"):
            raise ConfigError(f"root_path={self.root_path!r}: give a path that starts with /, such as /transduce")

    @property
    def max_body_bytes(self) -> int:
        """Largest request body that is no form."""
        return int(self.max_body_mb * MB)

    @property
    def max_file_bytes(self) -> int:
        """Largest uploaded file."""
        return int(self.max_file_mb * MB)

    def keys(self) -> frozenset[str]:
        """All API keys. Raises ConfigError for a file that cannot be read or holds none."""
        given = frozenset(map(str.strip, self.api_key))
        return given if self.api_key_file is None else given | _keys_in(self.api_key_file)


def _keys_in(file: Path) -> frozenset[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"api_key_file={str(file)!r}: {error}; give a text file with one key a line") from error
    keys = frozenset(line for line in map(str.strip, lines) if line and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"api_key_file={str(file)!r} holds no key; give one a line, or leave the option out")
    return keys


def _texts(name: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(isinstance(each, str) and each.strip() for each in value):
        shown = "an empty one" if name == "api_key" else repr(value)  # a key stays out of logs
        raise ConfigError(f"{name}: {shown}; give non-empty strings")


def _positive(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ConfigError(f"{name}={value!r}: give a number above 0")


def _whole(name: str, value: object, low: int, high: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        wanted = f">= {low}" if high is None else f"from {low} to {high}"
        raise ConfigError(f"{name}={value!r}: give a whole number {wanted}")


def _among(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r}: give one of {', '.join(allowed)}")
