"""Throughput against latency, a point for each level. Needs matplotlib, which is in the extra `plot`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.bench.figures import Figures
from transduce.errors import ConfigError

PANELS = {"ttft": "TTFT (ms)", "tpot": "TPOT (ms)", "e2e": "E2E (ms)"}
THROUGHPUTS = {
    "audio_throughput": "audio seconds/s",
    "output_throughput": "output tokens/s",
    "request_throughput": "requests/s",
}
"""The first of them that all levels have is drawn."""


def check() -> None:
    """Raises ConfigError where matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ConfigError(f'a plot needs matplotlib ({error}); pip install "transduce[plot]"') from error


def draw(path: Path, levels: Mapping[str, Figures]) -> None:
    """Write a PNG file. Raises ConfigError where matplotlib is missing or the file cannot be written."""
    check()
    from matplotlib.figure import Figure

    panels = [name for name in PANELS if any(getattr(found, name) for found in levels.values())]
    figure = Figure(figsize=(5 * max(1, len(panels)), 4), layout="constrained")
    for axes, name in zip(figure.subplots(1, max(1, len(panels)), squeeze=False)[0], panels, strict=False):
        _panel(axes, name, {level: found for level, found in levels.items() if getattr(found, name)})
    try:
        figure.savefig(path, format="png", dpi=150)
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _panel(axes: Any, latency: str, levels: Mapping[str, Figures]) -> None:
    throughput = next(name for name in THROUGHPUTS if all(getattr(found, name) for found in levels.values()))
    places = [getattr(found, throughput) for found in levels.values()]
    values = {
        statistic: [getattr(getattr(found, latency), statistic) for found in levels.values()]
        for statistic in ("median", "p99")
    }
    for statistic, each in values.items():
        axes.plot(places, each, marker="o", label=statistic)
    for level, place, value in zip(levels, places, values["p99"], strict=True):
        axes.annotate(level, (place, value), (-5, 5), textcoords="offset points", ha="right", fontsize=7)
    axes.margins(0.1)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(THROUGHPUTS[throughput])
    axes.set_ylabel(PANELS[latency])
    axes.grid(alpha=0.3)
    axes.legend()
