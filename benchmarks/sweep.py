"""The best settings of an engine for some work: one axis after another, keeping what was faster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings, and what they gave."""

    settings: Settings
    rate: float


def climb(axes: Mapping[str, tuple[Any, ...]], rate: Callable[[Settings], float]) -> list[Trial]:
    """Start from each axis's first value, and try the others one axis at a time. The trials, best first."""
    best = _trial({name: values[0] for name, values in axes.items()}, rate)
    trials = [best]
    for name, values in axes.items():
        tried = [_trial(best.settings | {name: value}, rate) for value in values[1:]]
        trials += tried
        best = max([best, *tried], key=_rate)
    return sorted(trials, key=_rate, reverse=True)


def _trial(settings: Settings, rate: Callable[[Settings], float]) -> Trial:
    return Trial(settings, rate(settings))


def _rate(trial: Trial) -> float:
    return trial.rate
