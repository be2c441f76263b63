"""docs/benchmarking.md, held against the commands: its flags are theirs, and its `bench serve` lines run.

Its other commands are run by tests/test_docs.py.
"""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from tests.bench.conftest import Run
from tests.bench.support import clip, completion, serving, transcription
from transduce.cli import bench

PAGE = (Path(__file__).parents[2] / "docs/benchmarking.md").read_text(encoding="utf-8")
COMMANDS = get_command(bench.app).commands  # type: ignore[attr-defined]  # an app of several commands is a group
LINES = re.findall(r"^transduce bench (serve .*)$", PAGE, re.MULTILINE)


def flags(text: str) -> set[str]:
    return set(re.findall(r"`(--[\w-]+)", text))


def own(command: str) -> set[str]:
    parameters = COMMANDS[command].params
    return {name for each in parameters for name in [*each.opts, *each.secondary_opts] if name.startswith("--")}


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_flags_are_those_that_the_commands_have() -> None:
    engine = flags(section("The model's flags"))
    assert flags(section("A server under load").partition("| flag |")[2]) == own("serve")
    assert flags(section("One batch")) | engine == own("latency")
    assert flags(section("Many prompts")) | engine == own("throughput")


def test_there_are_lines_to_run() -> None:
    assert len(LINES) >= 5


@pytest.mark.parametrize("line", LINES)
def test_lines_run(line: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text('{"prompt": "a", "max_tokens": 2}\n')
    Path("clips").mkdir()
    clip(Path("clips/a.wav"), 0.1)
    few = [] if "--dataset-path" in line else ["--num-prompts", "2"]
    quick = re.sub("--request-rate [1-9,]+", "--request-rate 200,400", line)
    with serving(transcription if "audio" in line else completion) as fake:
        code, said, err = run(*shlex.split(quick), "--base-url", fake.url, *few)
    assert (code, err) == (0, "")
    assert "E2E p99 (ms)" in said
    assert Path("out.png").exists() == ("--plot" in line)
