"""The log: one line per request with its times, as text or JSON, and nothing secret in it."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from tests.server.asgi import call, request
from tests.server.fakes import MODEL, FakeLLM, app
from tests.server.live import Live, tone
from transduce.server import logs
from transduce.server.access_log import AccessLog, Record
from transduce.server.options import ServeOptions

BODY = {"model": MODEL, "prompt": "x y"}
COMPLETIONS = "/v1/completions"


@pytest.fixture
def log() -> Iterator[list[logging.LogRecord]]:
    """The access log's records, of all levels."""
    found: list[logging.LogRecord] = []
    logger = logging.getLogger("transduce.access")
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[method-assign, assignment]
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(before)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = vars(record)["fields"]
    return found


def test_a_request_is_one_line_with_its_times(log: list[logging.LogRecord]) -> None:
    """The fake's: scheduled after 0.5 s, first token after 1."""
    call(app(), "POST", COMPLETIONS, BODY, {"x-request-id": "mine"})
    (record,) = log
    total = fields(record).pop("total_seconds")
    assert 0 < total < 10
    assert fields(record) == {
        "method": "POST",
        "path": COMPLETIONS,
        "status": 200,
        "queue_seconds": 0.5,
        "first_token_seconds": 1.0,
        "input_tokens": 4,
        "output_tokens": 3,
        "client": "192.0.2.1",
        "request_id": "mine",
    }


def test_what_was_heard_is_told(speech: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder's rows are among the input tokens, as in the answer's usage. The line may come after the answer."""
    told: SimpleQueue[Record] = SimpleQueue()
    monkeypatch.setattr(AccessLog, "_log", lambda _, record: told.put(record))
    made = speech.http.post("/v1/audio/transcriptions", data={"language": "en"}, files={"file": tone(200)})
    said = told.get(timeout=60).fields()
    assert said["audio_seconds"] == 0.5
    assert said["input_tokens"] == made.raise_for_status().json()["usage"]["input_tokens"] > 50


def test_several_prompts_are_one_line(log: list[logging.LogRecord]) -> None:
    call(app(), "POST", COMPLETIONS, BODY | {"prompt": ["x", "y"], "stream": True})
    (record,) = log
    assert (fields(record)["input_tokens"], fields(record)["output_tokens"]) == (8, 6)
    assert fields(record)["queue_seconds"] == 0.5


def test_refused_requests_are_logged_and_probes_only_for_debugging(log: list[logging.LogRecord]) -> None:
    served = app(api_key=("a secret",))
    call(served, "POST", COMPLETIONS, BODY, {"authorization": "Bearer another secret"})
    for path in ("/health", "/ready", "/metrics"):
        call(served, "GET", path)
    assert [fields(record)["status"] for record in log] == [401, 200, 200, 200]
    assert [record.levelno for record in log] == [logging.INFO, *[logging.DEBUG] * 3]
    assert "secret" not in str([fields(record) for record in log])


def test_a_client_that_left_is_told(log: list[logging.LogRecord]) -> None:
    llm = FakeLLM()
    llm.go.clear()

    async def leave() -> None:
        client, headers = request(app(llm), BODY)
        running = asyncio.create_task(client.run("POST", COMPLETIONS, headers))
        await llm.entered.wait()
        client.leave()
        await running

    asyncio.run(leave())
    (record,) = log
    assert (fields(record)["status"], fields(record)["left"]) == (499, True)


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[str]]]:
    """The lines written there; logging is as before afterwards."""
    root, loggers = logging.getLogger(), [logging.getLogger(name) for name in ("transduce", *logs.HEARD)]
    handlers, levels = root.handlers[:], [logger.level for logger in (root, *loggers)]
    root.handlers.clear()
    yield partial(_lines, capsys)
    root.handlers[:] = handlers
    for logger, level in zip((root, *loggers), levels, strict=True):
        logger.setLevel(level)


def _lines(captured: pytest.CaptureFixture[str]) -> list[str]:
    return captured.readouterr().err.splitlines()


def test_text(stderr: Callable[[], list[str]]) -> None:
    logs.configure(ServeOptions())
    call(app(), "POST", COMPLETIONS, BODY, {"x-request-id": "mine"})
    logging.getLogger("transduce.server.serve").info("ready")
    line, said = stderr()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO"
    known = "input_tokens=4 output_tokens=3 client=192.0.2.1 request_id=mine"
    times = r"queue_seconds=0.5 first_token_seconds=1.0 total_seconds=[\d.]+"
    assert re.fullmatch(f"{stamp} method=POST path={COMPLETIONS} status=200 {times} {known}", line)
    assert re.fullmatch(f"{stamp} ready", said)


def test_a_client_cannot_forge_lines(stderr: Callable[[], list[str]]) -> None:
    logs.configure(ServeOptions())
    call(app(), "GET", '/a status=200\nINFO "forged"')
    (line,) = stderr()
    assert r' path="/a status=200\nINFO \"forged\"" status=404 ' in line


def test_json(stderr: Callable[[], list[str]]) -> None:
    logs.configure(ServeOptions(log_format="json"))
    call(app(), "POST", COMPLETIONS, BODY)
    logging.getLogger("transduce.server.serve").error('a "quoted"\nline')
    try:
        raise KeyError("ours")
    except KeyError:
        logging.getLogger("transduce.server").exception("it failed")
    access, said, failed = [json.loads(line) for line in stderr()]
    assert (access["logger"], access["level"], access["status"]) == ("transduce.access", "info", 200)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", access["time"])
    assert said["message"] == 'a "quoted"\nline'
    assert "KeyError: 'ours'" in failed["traceback"]


@pytest.mark.parametrize(("level", "lines"), [("debug", 5), ("info", 3), ("warning", 2), ("error", 1)])
def test_levels(level: Any, lines: int, stderr: Callable[[], list[str]]) -> None:
    logs.configure(ServeOptions(log_level=level))
    logging.getLogger("transduce.engine").info("what was chosen")
    logging.getLogger("transduce.access").debug("a probe")
    logging.getLogger("transduce.access").info("a request")
    logging.getLogger("transduce.server.serve").warning("careful")
    logging.getLogger("transduce.engine").error("failed")
    logging.getLogger("asyncio").info("chatter")
    assert len(stderr()) == lines
