"""The command line and its terminal: streams that are closed, full or no text, and Ctrl-C."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import ENTRY, FLAGS, Run, clip
from transduce import LLM, cli


@pytest.mark.parametrize("form", [("-",), ("--file", "-")])
def test_stdin_that_is_no_text(form: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n")))
    code, out, err = run("generate", "./nowhere", *form)
    assert (code, out) == (cli.WRONG, "")
    assert err.startswith("transduce: Invalid value: cannot read '-': 'utf-8' codec can't decode byte 0xff")


def test_stdin_that_is_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = run("generate", "./nowhere", "-")
    assert (code, "no texts" in err) == (cli.WRONG, True)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_names_that_are_no_unicode_are_escaped(
    form: tuple[str, ...], run: Run, whisper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    path = clip(tmp_path / "\udcff.wav", 200)
    code, _, err = run("transcribe", whisper, path, path, "--language", "fr", "--max-tokens", "2", *form, *FLAGS)
    stdout.seek(0)
    said = stdout.read().splitlines()
    assert (code, err, len(said)) == (0, "", 2)
    assert all(r"\udcff.wav" in line for line in said)
    assert not form or json.loads(said[0])["audio"] == path


def test_verbose_says_what_the_engine_chose(bart: str, run: Run) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "generate", bart, "hello", "--verbose", *FLAGS],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "dtype float32" in done.stderr
    assert run("generate", bart, "hello", *FLAGS) == (0, done.stdout, "")


def test_ctrl_c_stops_at_once_without_a_traceback(bart: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("hello\n" * 50_000)
    command = [sys.executable, "-u", "-c", ENTRY, "generate", bart, "--file", str(lines), "--verbose", *FLAGS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == cli.INTERRUPTED
    assert out == ""
    assert "Traceback" not in first + err


@pytest.mark.long  # Python itself reports an interruption inside some callbacks of an import, rarely
@pytest.mark.parametrize("moment", [0.0, 0.3, 0.8, 1.3])
def test_ctrl_c_at_any_time_and_again(bart: str, tmp_path: Path, moment: float) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("hello\n" * 50_000)
    started = f"from transduce.cli import main; print('started', flush=True); {ENTRY}"
    command = [sys.executable, "-c", started, "generate", bart, "--file", str(lines), *FLAGS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(0.05 + moment)  # Python code is running, wherever it is
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            time.sleep(0.02)
            process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, first, out, err.strip()) == (cli.INTERRUPTED, "started\n", "", "")


@pytest.mark.parametrize("swallowed", [True, False])
def test_an_interruption_that_a_library_turns_into_something_else(
    swallowed: bool, monkeypatch: pytest.MonkeyPatch, run: Run, bart: str, interrupts: None
) -> None:
    def load(*arguments: object, **options: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if not swallowed:
            raise ValueError("could not determine the shape")

    monkeypatch.setattr(LLM, "__init__", load)
    assert run("generate", bart, "hello", *FLAGS)[:2] == (cli.INTERRUPTED, "")


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        (">/dev/full", cli.FAILED, "transduce: cannot write the answers: No space left on device\n"),
        (">&-", 0, ""),
        ("<&-", 0, ""),
    ],
)
def test_streams_that_are_full_or_closed(redirected: str, code: int, said: str) -> None:
    command = ["sh", "-c", f'exec "$0" -c "$1" --version {redirected}', sys.executable, ENTRY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_reader_that_leaves_is_no_error(bart: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "generate", bart, "hello", *FLAGS],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode != 0


def test_an_interruption_anywhere_is_130(
    monkeypatch: pytest.MonkeyPatch, run: Run, bart: str, interrupts: None
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LLM, "generate", interrupted)
    code, out, err = run("generate", bart, "hello", *FLAGS)
    assert (code, out, err.strip()) == (cli.INTERRUPTED, "", "")
