import json
from pathlib import Path

import pytest

from benchmarks.contest import Result, contest
from benchmarks.report import read_settings, table, write_json
from benchmarks.sweep import Settings, Trial, climb
from benchmarks.worker import Worker, WorkerError


class Echo:
    """An engine whose work is a number, done at once."""

    def __init__(self, best: int) -> None:
        self.best = best
        self.seen: list[int] = []

    def axes(self, work: int) -> dict[str, tuple[int, ...]]:
        return {"size": (1, 2)} if self.best else {}

    def run(self, work: int, size: int = 0) -> float:
        self.seen.append(work)
        return 1e9 if size == self.best else 1e-9

    def works(self) -> list[int]:
        return self.seen

    def fail(self) -> None:
        raise ValueError("no such thing")


def test_a_sweep_keeps_the_better_value_of_each_axis() -> None:
    def rate(settings: Settings) -> float:
        return float(settings["a"] * 10 - settings["b"])

    trials = climb({"a": (1, 3, 2), "b": (1, 0)}, rate)
    assert trials[0] == Trial({"a": 3, "b": 0}, 30)
    assert len(trials) == 4


def test_an_engine_without_settings_is_tried_once() -> None:
    assert climb({}, lambda settings: 1.0) == [Trial({}, 1.0)]


def test_all_engines_run_the_same_new_inputs_at_their_best(capsys: pytest.CaptureFixture[str]) -> None:
    draws = iter(range(100, 200))
    with Worker("us", Echo, 0) as us, Worker("them", Echo, 2) as them:
        result = contest([us, them], "B=1", lambda: next(draws), lambda: 0, rounds=3)
        ours, theirs = us.ask("works"), them.ask("works")
    assert ours[-3:] == theirs[-3:]
    assert len(set(ours[-3:])) == 3
    assert result.sweeps["them"][0].settings == {"size": 2}
    assert [len(rates) for rates in result.rates.values()] == [3, 3]
    assert "round 3" in capsys.readouterr().out


def test_known_settings_are_taken() -> None:
    with Worker("us", Echo, 0) as us, Worker("them", Echo, 2) as them:
        known = {"B=1": {"them": {"size": 1}}}
        result = contest([us, them], "B=1", lambda: 1, lambda: 0, rounds=1, known=known)
    assert [trial.settings for trial in result.sweeps["them"]] == [{"size": 1}]


def test_a_failure_in_the_worker_is_told() -> None:
    with Worker("us", Echo, 0) as worker:
        with pytest.raises(WorkerError, match="no such thing"):
            worker.ask("fail")
        assert worker.ask("works") == []


def test_a_workers_end_is_told() -> None:
    with Worker("us", exit) as worker, pytest.raises(WorkerError, match="process of us ended"):
        worker.ask("works")


RESULT = Result(
    "B=8", {"us": [4.0, 9.0, 6.0], "them": [2.0, 3.0, 6.0]}, {"us": [Trial({}, 4.0)], "them": [Trial({"size": 2}, 3.0)]}
)


def test_ratios_are_of_each_round() -> None:
    assert RESULT.median("us") == 6
    assert RESULT.ratio("them") == 2


def test_the_table_has_ratios_and_the_roofline() -> None:
    line = table([RESULT], "tokens/s", {"B=8": 12.0}).splitlines()[1]
    assert line.split() == ["B=8", "6", "3", "2.00", "12", "50%"]


def test_json_holds_every_round(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", [RESULT], cache_hits=0)
    read = json.loads((tmp_path / "out.json").read_text())
    assert read["results"][0]["rates"]["us"] == [4.0, 9.0, 6.0]
    assert read["results"][0]["ratios"] == {"them": 2.0}
    assert read["cache_hits"] == 0
    assert read["machine"]["cores"] >= 1
    assert read_settings(tmp_path / "out.json") == {"B=8": {"us": {}, "them": {"size": 2}}}
