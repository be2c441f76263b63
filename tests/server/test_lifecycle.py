"""A server process from its start to its end: loading, an engine that dies, signals, and why it may not start."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.folders import text_folder
from tests.server.process import FLAGS, Server, free_port, run, server

# Long answers, so that there is time to do something meanwhile.
GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 64}
LONG = {"max_tokens": 60, "ignore_eos": True, "n": 8, "temperature": 1.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_folder(tmp_path_factory.mktemp("bart"), GENERATION)


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(folder, tmp_path_factory.mktemp("log") / "log") as found:
        found.wait_ready()
        yield found


def test_what_a_person_reads_at_the_start(folder: Path, tmp_path: Path) -> None:
    with server(folder, tmp_path / "log", "--log-format", "text") as found:
        found.wait_ready()
        found.until(lambda: "ready at" in found.log_file.read_text())
        said = found.log_file.read_text()
        for words in (
            f"serves {folder} as tiny",
            "dtype float32 on cpu, attention backend ",
            "KV capacity ",
            "largest concurrency 64 ",
        ):
            assert words in said
        assert re.search(rf"ready at {found.url} after \d+\.\d s", said)
        found.signal(signal.SIGINT)
        assert found.wait() == 0


def test_it_answers_while_it_loads(folder: Path, tmp_path: Path) -> None:
    with server(folder, tmp_path / "log") as found:
        assert found.status("/health") == 200
        refused = found.client.get("/v1/models")
        # Loading takes seconds: by far the slowest that can be between the port and the engine.
        assert refused.status_code == 503
        assert "still loading" in refused.json()["error"]["message"]
        assert found.status("/ready") == 503
        found.signal()
        assert found.wait() == 0  # also before it is ready
        assert not found.said("Traceback")


def test_a_killed_engine_comes_back_by_itself(served: Server) -> None:
    before = served.complete(max_tokens=9).raise_for_status().json()["choices"]
    engine = served.engine()

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(served.complete, **LONG) for _ in range(8)]
        served.until(lambda: _running(served) > 0)
        os.kill(engine, signal.SIGKILL)
        statuses = {answer.result().status_code for answer in answers}
    assert statuses == {503}
    assert served.status("/health") == 200

    served.wait_ready()
    assert served.engine() != engine
    assert served.complete(max_tokens=9).json()["choices"] == before
    assert "transduce:engine_restarts_total" in served.client.get("/metrics").text
    assert served.said("engine process ended")
    assert served.said("ready again")


def test_an_engine_that_dies_amid_a_stream_ends_it_with_an_error(served: Server) -> None:
    with served.client.stream(
        "POST", "/v1/completions", json={"model": "tiny", "prompt": "hello", "stream": True, **LONG}
    ) as stream:
        lines = stream.iter_lines()
        next(lines)
        os.kill(served.engine(), signal.SIGKILL)
        rest = [line for line in lines if line]
    assert "the engine process ended" in rest[-1]
    assert "[DONE]" not in rest[-1]
    served.wait_ready()


def test_requests_that_run_are_finished_before_it_ends(folder: Path, tmp_path: Path) -> None:
    with server(folder, tmp_path / "log") as found, ThreadPoolExecutor(4) as pool:
        found.wait_ready()
        answers = [pool.submit(found.complete, **LONG) for _ in range(4)]
        found.until(lambda: _running(found) == 4)
        found.signal()
        found.until(lambda: found.said("shutting down"))
        refused = [found.status("/ready"), found.status("/v1/models")]
        assert set(refused) <= {503, 0}  # 0: it has ended already
        assert [answer.result().status_code for answer in answers] == [200] * 4
        assert found.wait() == 0
        assert not found.said("still running")
        assert found.said("stopped: 4 requests finished, 0 were cut off")


def test_requests_that_run_too_long_are_cut_off(folder: Path, tmp_path: Path) -> None:
    with server(folder, tmp_path / "log", "--shutdown-timeout", "0.01") as found:
        found.wait_ready()
        with ThreadPoolExecutor(32) as pool:
            answers = [pool.submit(_status, found) for _ in range(32)]
            found.until(lambda: _running(found) > 0)
            found.signal()
        statuses = {answer.result() for answer in answers}
        assert found.wait() == 0
        assert 503 in statuses
        assert statuses <= {200, 503, 0}


def test_a_second_signal_does_not_wait(folder: Path, tmp_path: Path) -> None:
    """Not even for a body that still comes."""
    with server(folder, tmp_path / "log", "--shutdown-timeout", "600") as found, uploading(found):
        found.wait_ready()
        with ThreadPoolExecutor(32) as pool:
            answers = [pool.submit(_status, found) for _ in range(32)]
            found.until(lambda: _running(found) > 0)
            found.signal()
            found.until(lambda: found.said("shutting down"))
            found.signal()
        statuses = {answer.result() for answer in answers}
        assert found.wait() == 0
        assert 503 in statuses
        assert statuses <= {200, 503, 0}
        assert found.said(" were cut off")
        assert not any("traceback" in line or line["level"] == "error" for line in found.log)


@contextmanager
def uploading(found: Server) -> Iterator[None]:
    """A client that has sent half of its request."""
    found.wait_ready()
    with socket.create_connection(("127.0.0.1", found.client.base_url.port or 0)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        yield


def _status(found: Server) -> int:
    try:
        return found.complete(**LONG).status_code
    except httpx.TransportError:
        return 0


def _running(found: Server) -> int:
    text = found.client.get("/metrics").text
    (value,) = re.findall(r"^transduce:num_requests_running\{.*\} (\d+)", text, re.MULTILINE)
    return int(value)


def test_a_port_in_use_is_one_line(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ended = run(folder, "--port", port)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert f"127.0.0.1 port {port}: Address already in use" in line
    assert "--port" in line


def test_a_missing_model_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ended = run(tmp_path / "nowhere", "--port", str(free_port()))
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "nowhere" in line


def test_too_little_memory_is_one_line(folder: Path) -> None:
    ended = run(folder, "--port", str(free_port()), *FLAGS[:2], "--kv-cache-bytes", "1000")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "kv_cache_bytes" in line


def test_a_key_file_that_is_not_there_is_one_line(folder: Path, tmp_path: Path) -> None:
    """Before anything is served without keys."""
    ended = run(folder, "--port", str(free_port()), "--api-key-file", str(tmp_path / "keys"))
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)


def test_the_engine_ends_with_a_server_that_is_killed(folder: Path, tmp_path: Path) -> None:
    with server(folder, tmp_path / "log") as found:
        found.wait_ready()
        engine = found.engine()
        found.process.kill()
        found.wait()
        found.until(lambda: not _alive(engine))


def _alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_slow_stream_holds_nobody_up(served: Server) -> None:
    """One that never reads its answer."""
    with (
        httpx.Client(base_url=served.url) as other,
        other.stream("POST", "/v1/completions", json={"model": "tiny", "prompt": "hello", "stream": True, **LONG}),
    ):
        assert served.complete(max_tokens=3).status_code == 200
