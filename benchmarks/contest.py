"""Engines against each other: a sweep for each, then rounds in which all run the same new inputs, in turn.

Owns the order of runs and the ratios. Knows neither text nor speech.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.sweep import Settings, Trial, climb
from benchmarks.worker import Worker

Draw = Callable[[], Any]
Known = Mapping[str, Mapping[str, Settings]]
"""Settings by column and engine."""


@dataclass(frozen=True, slots=True)
class Result:
    """One column. rates: amount per second, for each engine in each round; ours is the first engine."""

    column: str
    rates: dict[str, list[float]]
    sweeps: dict[str, list[Trial]]

    def median(self, engine: str) -> float:
        """An engine's median rate."""
        return statistics.median(self.rates[engine])

    def ratio(self, peer: str) -> float:
        """The median over the rounds of our rate by the peer's."""
        ours = next(iter(self.rates.values()))
        return statistics.median(us / them for us, them in zip(ours, self.rates[peer], strict=True))

    def record(self) -> dict[str, Any]:
        """For JSON."""
        medians = {name: self.median(name) for name in self.rates}
        ratios = {name: self.ratio(name) for name in list(self.rates)[1:]}
        return {**asdict(self), "medians": medians, "ratios": ratios}


def contest(
    workers: Sequence[Worker], column: str, draw: Draw, warm_up: Draw, rounds: int, known: Known | None = None
) -> Result:
    """Settle each engine's settings, then run the rounds, every other one in reverse order. Prints as it goes.

    draw: the column's inputs, new at each call. warm_up: a little work, run after settings changed and not timed.
    known: settings of an earlier sweep, to be taken instead of another.
    """
    settled = (known or {}).get(column, {})
    sweeps = {worker.name: _sweep(worker, column, draw, warm_up, settled.get(worker.name)) for worker in workers}
    rates: dict[str, list[float]] = {worker.name: [] for worker in workers}
    for turn in range(rounds):
        work = draw()
        for worker in workers if turn % 2 == 0 else reversed(workers):
            rates[worker.name].append(worker.rate(work, **sweeps[worker.name][0].settings))
        print(f"{column:10} round {turn + 1}  " + "  ".join(f"{name} {each[-1]:.4g}" for name, each in rates.items()))
    return Result(column, rates, sweeps)


def _sweep(worker: Worker, column: str, draw: Draw, warm_up: Draw, settled: Settings | None) -> list[Trial]:
    def rate(settings: Settings) -> float:
        worker.rate(warm_up(), **settings)
        return worker.rate(draw(), **settings)

    axes = worker.ask("axes", draw()) if settled is None else {name: (value,) for name, value in settled.items()}
    trials = climb(axes, rate)
    if trials[0].settings:
        print(
            f"{column:10} {worker.name}: {trials[0].rate:.4g} with {_words(trials[0].settings)}, best of {len(trials)}"
        )
    return trials


def _words(settings: Settings) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
