"""Batches of requests in OpenAI's batch file format, answered by the server's app without a network.

Owns the format of both files, what of a batch is still to be done, and how much of it runs at once. What a request may
say, and what it is answered, is the app's.
"""

import asyncio
import fcntl
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Self
from uuid import uuid4

import httpx
from starlette.types import ASGIApp

from transduce.async_engine.llm import AsyncLLM
from transduce.config import EngineConfig
from transduce.core.checks import shown
from transduce.errors import ConfigError, RequestError
from transduce.server.app import create_app
from transduce.server.batch_audio import form
from transduce.server.options import ServeOptions
from transduce.server.service import Service

Progress = Callable[[int, int, int], None]
"""Told of requests done, and of their input and output tokens."""

AUDIO = ("/v1/audio/transcriptions", "/v1/audio/translations")
URLS = ("/v1/chat/completions", "/v1/completions", "/v1/score_target", *AUDIO)
"""What a line may ask for: the routes that run the model. A clip is named in `body.file`, and posted in a form."""

TRIES = 3
"""How often a request is made whose engine process ends."""

BEGINNING = b'{"id": "batch_req_'
"""Of every result, by which a torn one is told from a file of something else."""


@dataclass(frozen=True, slots=True)
class Line:
    """A request of a batch. folder: of its clip. fault: why it cannot be made, None where it can."""

    custom_id: str
    folder: Path
    url: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    fault: str | None = None

    def content(self) -> dict[str, Any]:
        """What httpx is to post. Raises RequestError where it cannot be, MediaError for a clip that cannot be read."""
        if self.fault:
            raise RequestError(self.fault)
        return form(self.body, self.folder) if self.url in AUDIO else {"json": self.body}


def read(file: Path) -> list[Line]:
    """The requests of a batch file, in its order; blank lines are skipped.

    Raises ConfigError for a file that cannot be read, that holds a line without a custom_id, which its result could
    not be known by, or one twice.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {str(file)!r}: {error}; give a JSONL file in UTF-8") from error
    rows = [(number, row) for number, row in enumerate(text.split("\n"), 1) if row.strip()]
    lines = [_line(row, f"{str(file)!r}, line {number}", file.parent) for number, row in rows]
    twice = [name for name, times in Counter(line.custom_id for line in lines).items() if times > 1]
    if twice:
        raise ConfigError(f"{str(file)!r} has custom_id {twice[0]!r} more than once; give each line its own")
    return lines


def _line(row: str, where: str, folder: Path) -> Line:
    request = _object(row, where)
    name = request.get("custom_id")
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"{where}: custom_id={shown(name)}; give each line a text of its own by which to know its result"
        )
    fault = _fault(request)
    return Line(name, folder, fault=fault) if fault else Line(name, folder, request["url"], request["body"])


def _object(row: str | bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(row)
    except ValueError as error:
        raise ConfigError(f"{where} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is no JSON object")
    return value


def _fault(request: Mapping[str, Any]) -> str | None:
    method, url, body = (request.get(name) for name in ("method", "url", "body"))
    if method != "POST":
        return f"method={shown(method)}: give 'POST'"
    if url not in URLS:
        return f"url={shown(url)}: give one of {', '.join(URLS)}"
    if not isinstance(body, dict):
        return "body: give the request's JSON object"
    if body.get("stream"):
        return "body.stream: a batch has no one to stream to; leave it out"
    return None


class Results:
    """The output file, to which results are appended, each whole and at once. done: custom ids of those in it.

    Opening it takes away a last line that an interrupted run has left torn. Raises ConfigError for a file that another
    process is writing to, or that holds anything but results.
    """

    def __init__(self, file: Path) -> None:
        try:
            self._file = file.open("a+b")
        except OSError as error:
            raise ConfigError(f"cannot write {str(file)!r}: {error.strerror}; give another file") from error
        try:
            self._lock(file)
            self.done = frozenset(_kept(self._file, file))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, result: Mapping[str, Any]) -> None:
        """Raises OSError where the disk is full."""
        self._file.write(json.dumps(result).encode() + b"\n")
        self._file.flush()

    def _lock(self, file: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"another run is writing to {str(file)!r}; wait for it, or give another file") from error


def _kept(results: BinaryIO, file: Path) -> Iterator[str]:
    """The custom ids of the results in a file; what is torn is cut off."""
    results.seek(0)
    end = 0
    for number, row in enumerate(results, 1):
        if _torn(row):
            results.truncate(end)
            return
        end += len(row)
        yield _custom_id(row, f"{str(file)!r}, line {number}")


def _torn(row: bytes) -> bool:
    """Whether it is a result without its end, which nothing but the last row can be."""
    return not row.endswith(b"\n") and (row.startswith(BEGINNING) or BEGINNING.startswith(row))


def _custom_id(row: bytes, where: str) -> str:
    result = _object(row, where)
    if not row.endswith(b"\n") or not {"id", "custom_id", "response", "error"} <= result.keys():
        raise ConfigError(f"{where} is no result of a batch; give another file to write to")
    return str(result["custom_id"])


async def answer(
    config: EngineConfig, names: Sequence[str], lines: Sequence[Line], results: Results, progress: Progress
) -> int:
    """Load a model, and `run` the lines through its server's app, enough of them side by side to keep it busy.

    names: what requests may call the model; none: as `config` does. Raises as AsyncLLM.start and `run`.
    """
    options = ServeOptions(
        served_model_name=tuple(names),
        max_waiting=sys.maxsize,
        priority=True,
        request_timeout=sys.maxsize,
        max_body_mb=sys.maxsize,
        max_file_mb=sys.maxsize,
        max_audio_seconds=sys.maxsize,
    )
    async with AsyncLLM(**{field.name: getattr(config, field.name) for field in fields(config)}) as llm:
        app = create_app(Service(llm, options))
        return await run(app, lines, results, 2 * llm.config.max_num_seqs, progress)


async def run(app: ASGIApp, lines: Sequence[Line], results: Results, at_once: int, progress: Progress) -> int:
    """Make the requests, at most `at_once` side by side, and append each one's result as soon as it is there.

    Returns how many succeeded. Raises OSError where a result cannot be written; those appended before stay.
    """
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    todo = iter(lines)
    succeeded = 0

    async def work() -> None:
        nonlocal succeeded
        for line in todo:
            result = await _result(client, line)
            results.append(result)
            succeeded += _succeeded(result)
            progress(1, *_usage(result))

    async with httpx.AsyncClient(transport=transport, base_url="http://batch", timeout=None) as client:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(at_once, len(lines))):
                    group.create_task(work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return succeeded


async def _result(client: httpx.AsyncClient, line: Line) -> dict[str, Any]:
    result: dict[str, Any] = {"id": f"batch_req_{uuid4().hex}", "custom_id": line.custom_id}
    try:
        content = line.content()
    except RequestError as error:
        return result | {"response": None, "error": {"code": "invalid_request", "message": str(error)}}
    answer = await _answer(client, line.url, content)
    said = answer.json() if answer.headers["content-type"] == "application/json" else answer.text
    response = {"status_code": answer.status_code, "request_id": answer.headers["x-request-id"], "body": said}
    return result | {"response": response, "error": None}


async def _answer(client: httpx.AsyncClient, url: str, content: Mapping[str, Any]) -> httpx.Response:
    """What the app answers, by an engine that went on to the end, unless it ended under the request time and again."""
    for _ in range(TRIES - 1):
        answer = await client.post(url, **content)
        if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
            return answer
        await _ready(client)
    return await client.post(url, **content)


async def _ready(client: httpx.AsyncClient) -> None:
    while (await client.get("/ready")).status_code != HTTPStatus.OK:
        await asyncio.sleep(0.1)


def _succeeded(result: Mapping[str, Any]) -> bool:
    return result["error"] is None and result["response"]["status_code"] == HTTPStatus.OK


def _usage(result: Mapping[str, Any]) -> tuple[int, int]:
    """Input and output tokens, where the answer counts them."""
    body = result["response"]["body"] if _succeeded(result) else None
    usage = body.get("usage", {}) if isinstance(body, dict) else {}
    inputs = usage.get("prompt_tokens", usage.get("input_tokens", 0))
    return inputs, usage.get("completion_tokens", usage.get("output_tokens", 0))
