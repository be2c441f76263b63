"""benchmarks.serving: which rate is taken, that all get the same, and what a server that does not start costs."""

from dataclasses import dataclass, field
from math import inf

import pytest

from benchmarks.serving import Inputs, compete, highest, launched, show
from benchmarks.worker import WorkerError
from tests.bench.support import Answer, Posted, completion, serving
from transduce.bench.figures import Figures, figures
from transduce.bench.records import Record

Asked = tuple[str, float, int]


@dataclass(frozen=True, slots=True)
class Fake(Inputs):
    """Answers after as many seconds as its URL says, but grows a queue above a rate."""

    most: float = 5.0
    asked: list[Asked] = field(default_factory=list)

    def measure(self, url: str, rate: float, seed: int) -> Figures:
        self.asked.append((url, rate, seed))
        return figures([Record(0.0, float(url))])

    def held(self, url: str, rate: float, seed: int) -> bool:
        return rate <= self.most

    def warm_up(self, url: str) -> None:
        pass


def test_the_rate_is_the_highest_that_is_held() -> None:
    assert highest(Fake("m", 99, 4), "1", 6.0, 0) == pytest.approx(4.8)
    assert highest(Fake("m", 99, 4), "1", 5.0, 0) == pytest.approx(4.75)
    with pytest.raises(WorkerError, match="holds no rate near its 200 requests/s"):
        highest(Fake("m", 99, 4), "1", 200.0, 0)


def test_all_get_the_same_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = Fake("m", 99, 4)
    rounds = compete(inputs, {"transduce": "1", "ctranslate2": "4"}, 5.0, rounds=2, seed=7)
    assert inputs.asked == [("1", 5.0, 107), ("4", 5.0, 107), ("4", 5.0, 108), ("1", 5.0, 108)]
    show(rounds, 5.0)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "round 1, p50 / p99 ms: transduce 1000 / 1000, ctranslate2 4000 / 4000"
    assert said[-2].split() == ["median", "ms", "1000", "4000", "0.25"]


def test_a_seed_draws_requests_and_their_moments() -> None:
    inputs = Inputs("m", 99, 4)
    assert inputs.calls(3) == inputs.calls(3) != inputs.calls(4)
    with serving(completion) as fake:
        found = inputs.measure(fake.url, inf, 3)
    asked = sum(posted.body["max_tokens"] for posted in fake.posted)
    assert (found.completed, found.output_tokens) == (4, asked)


def test_a_failed_request_ends_the_comparison() -> None:
    def answer(posted: Posted) -> Answer:
        return Answer([b"no"], status=500)

    with serving(answer) as fake, pytest.raises(WorkerError, match="HTTP 500: no"):
        Inputs("m", 99, 4).measure(fake.url, inf, 3)


def test_a_server_that_does_not_start_is_said() -> None:
    with pytest.raises(WorkerError, match="exit code 3"), launched(["-c", "import sys; sys.exit(3)"]):
        pass
