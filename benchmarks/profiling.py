"""Where a step's time goes: time in each function itself, by the interpreter's own profiler.

A call into torch or into a compiled kernel counts as the function's that it is for the interpreter: torch's calls have
names of their own, a kernel's time is that of the Python function around it.
"""

import cProfile
import pstats
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from transduce.engine import Engine

Place = tuple[str, int, str]
Figures = tuple[int, int, float, float, object]


@dataclass(frozen=True, slots=True)
class Share:
    """One function's calls and milliseconds, per step of the engine."""

    function: str
    calls: float
    milliseconds: float


def shares(engine: Engine, run: Callable[[], object]) -> list[Share]:
    """Each function that `run` spends time in, the longest first."""
    profiler = cProfile.Profile()
    with patch.object(engine, "step", wraps=engine.step) as step:
        profiler.runcall(run)
    stats: dict[Place, Figures] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    rows = [
        Share(_name(place), calls / step.call_count, 1e3 * own / step.call_count)
        for place, (calls, _, own, _, _) in stats.items()
    ]
    return sorted(rows, key=lambda share: share.milliseconds, reverse=True)


def _name(place: Place) -> str:
    """`norm.py:12 layer_norm`; functions that are not Python's have no file."""
    path, line, function = place
    return function if path == "~" else f"{'/'.join(Path(path).parts[-2:])}:{line} {function}"


def show(rows: list[Share], most: int = 30) -> None:
    """Print the longest, and the sum of all."""
    print(f"{sum(each.milliseconds for each in rows):8.2f} ms per step under the profiler, which slows Python down")
    for each in rows[:most]:
        print(f"{each.milliseconds:8.2f} ms {each.calls:8.1f} calls  {each.function}")
