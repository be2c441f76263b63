"""Reports: the table, the JSON and the plot."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from transduce.bench import plot, report
from transduce.bench.figures import Figures, figures
from transduce.bench.records import Record
from transduce.errors import ConfigError

RECORD = Record(0.0, 4.0, (1.0, 2.0, 4.0), 1_500, 4)
STREAMED = figures([RECORD, replace(RECORD, ended=8.0)], {"ttft": 500.0})
WHOLE = figures([Record(0.0, 2.0, error="no"), Record(0.0, 2.0)])


def test_rows_hold_what_any_level_has() -> None:
    assert report.rates({"a": STREAMED, "b": WHOLE}) == {
        "completed requests": ["2", "1"],
        "failed requests": ["0", "1"],
        "duration (s)": ["8.00", "2.00"],
        "prompt tokens": ["3,000", ""],
        "output tokens": ["8", ""],
        "requests/s": ["0.25", "0.50"],
        "goodput (requests/s)": ["0.00", ""],
        "output tokens/s": ["1.00", ""],
        "total tokens/s": ["376.00", ""],
    }
    rows = report.latencies({"a": STREAMED, "b": WHOLE})
    assert list(rows) == [f"{n} {s} (ms)" for n in ("TTFT", "TPOT", "ITL", "E2E") for s in ("mean", "median", "p99")]
    assert (rows["TTFT mean (ms)"], rows["E2E median (ms)"]) == (["1,000.00", ""], ["6,000.00", "2,000.00"])


def test_the_table_is_as_wide_as_its_levels() -> None:
    levels = {f"{rate}/s, 64 clients": STREAMED for rate in range(12)}
    lines = report.grid([*levels], report.latencies(levels)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert all(level in lines[1] for level in levels)
    assert lines[3].count("1,000.00") == 12


def test_json_says_what_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["transduce", "--api-key", "secret", "--api-key=secret", "--seed", "7"])
    report.write_json(tmp_path / "out.json", {"seed": 7, "path": tmp_path})
    document = json.loads((tmp_path / "out.json").read_text())
    command = ["transduce", "--api-key", "…", "--api-key=…", "--seed", "7"]
    assert (document["command"], document["seed"], document["path"]) == (command, 7, str(tmp_path))
    assert document.keys() == {"command", "date", "transduce", "seed", "path"}


@pytest.mark.parametrize("found", [STREAMED, WHOLE, replace(STREAMED, audio_throughput=9.0)])
def test_a_plot_is_drawn_of_what_there_is(found: Figures, tmp_path: Path) -> None:
    plot.draw(tmp_path / "out.png", {"1 client": found, "2 clients": replace(found, request_throughput=1.0)})
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_of_failures_alone_is_empty_axes(tmp_path: Path) -> None:
    plot.draw(tmp_path / "out.png", {"a": figures([Record(0.0, 2.0, error="no")])})
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r'pip install "transduce\[plot\]"'):
        plot.check()


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        report.write_json(tmp_path, {})
    with pytest.raises(ConfigError, match="cannot write"):
        plot.draw(tmp_path, {"a": STREAMED})
