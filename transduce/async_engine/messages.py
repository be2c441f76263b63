"""What crosses between AsyncLLM's process and the engine's: plain records, pickled.

Beside these, the engine's process sends its log records as they are. Knows neither side.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from logging import LogRecord

from transduce.async_engine.stats import Stats
from transduce.config import EngineConfig
from transduce.core.capacity import Room
from transduce.core.output import Output
from transduce.core.request import Request
from transduce.engine import About, Loaded
from transduce.errors import RequestError, TransduceError
from transduce.frontend.frontend import Job, Params

Load = Callable[[EngineConfig], Loaded]
"""What loads the engine in its process; a function that can be imported there."""


@dataclass(frozen=True, slots=True)
class Start:
    """The first message: what to load, and down to which level to log."""

    load: Load
    config: EngineConfig
    log_level: int


@dataclass(frozen=True, slots=True)
class Turn:
    """When a request is served: see core.request.Request. recording: what it asks about, among other requests."""

    owner: str = ""
    priority: int = 0
    recording: str | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """A request. quiet: say nothing of it until it is finished, but that it was scheduled."""

    request: Request
    quiet: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """A stop string ended hypothesis `index` after `at` new tokens."""

    request_id: str
    index: int
    at: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Nobody waits for the request any more, nor needs what it leases."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is loaded: its resolved config, what was chosen, and how long answers may be."""

    config: EngineConfig
    about: About
    room: Room


@dataclass(frozen=True, slots=True)
class Failed:
    """Loading failed, and the process ends."""

    error: TransduceError


@dataclass(frozen=True, slots=True)
class Step:
    """What happened since the last of these. refused: requests, by id, that were never begun.

    seconds: how long each step took.
    """

    outputs: list[Output]
    refused: list[tuple[str, TransduceError]]
    stats: Stats
    seconds: list[float]


def portable(params: Params) -> Params:
    """The parameters, whose request can cross. Raises RequestError for others."""
    if params.prefix_allowed_tokens_fn is not None:
        raise RequestError(
            "prefix_allowed_tokens_fn: the engine runs in a process of its own, which a function cannot enter; "
            "give guided_choice, guided_regex or guided_grammar, or use LLM"
        )
    return params


def added(job: Job, key: str, turn: Turn, every: bool, leases: bool) -> Add:
    """The engine's names for requests are its own: a name is free for the next request before the engine has heard."""
    request = replace(job.request, request_id=key, owner=turn.owner, priority=turn.priority, leases=leases)
    return Add(request, quiet=not every and not job.stop_strings)


ToEngine = Add | Finish | Abort
FromEngine = Ready | Failed | Step | LogRecord
