"""Results as a table, as JSON and as plots."""

import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.contest import Result
from benchmarks.sweep import Settings
from benchmarks.worker import cores

PACKAGES = ("transduce", "torch", "transformers", "ctranslate2", "faster-whisper")


def table(results: Sequence[Result], unit: str, floors: Mapping[str, float] | None = None) -> str:
    """One line for each column: medians, ratios to the peers, and `floors`, the roofline in the same unit."""
    engines = list(results[0].rates)
    heads = [*engines, *(f"by {peer}" for peer in engines[1:]), *(["roofline", "of it"] if floors else [])]
    widths = [max(10, len(head) + 2) for head in heads]
    lines = [f"{unit:14}" + "".join(map(str.rjust, heads, widths))]
    for result in results:
        numbers = [f"{result.median(name):.4g}" for name in engines]
        numbers += [f"{result.ratio(name):.2f}" for name in engines[1:]]
        if floors:
            floor = floors[result.column]
            numbers += [f"{floor:.4g}", f"{result.median(engines[0]) / floor:.0%}"]
        lines.append(f"{result.column:14}" + "".join(map(str.rjust, numbers, widths)))
    return "\n".join(lines)


def write_json(path: Path, results: Sequence[Result], **more: Any) -> None:
    """Everything that was measured, and on what."""
    document = {
        "command": sys.argv,
        "machine": machine(),
        "results": [result.record() for result in results],
        **more,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def read_settings(path: Path) -> dict[str, dict[str, Settings]]:
    """The best settings in results that `write_json` wrote, by column and engine."""
    results = json.loads(path.read_text())["results"]
    return {
        each["column"]: {name: trials[0]["settings"] for name, trials in each["sweeps"].items()} for each in results
    }


def machine() -> dict[str, Any]:
    """The processor, the packages and the date."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": models[0].partition(":")[2].strip() if models else platform.processor(),
        "cores": cores(),
        "packages": {name: _version(name) for name in PACKAGES},
        "date": time.strftime("%Y-%m-%d"),
    }


def plot_bars(path: Path, results: Sequence[Result], unit: str) -> None:
    """Medians, a group of bars for each column."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 1.3 * len(results), 4), layout="constrained")
    axes = figure.subplots()
    engines = list(results[0].rates)
    for at, name in enumerate(engines):
        places = [index + at / (len(engines) + 1) for index in range(len(results))]
        bars = axes.bar(places, [result.median(name) for result in results], 1 / (len(engines) + 1), label=name)
        axes.bar_label(bars, fmt="%.4g", fontsize=7)
    axes.set_xticks([index + (len(engines) - 1) / (len(engines) + 1) / 2 for index in range(len(results))])
    axes.set_xticklabels([result.column for result in results])
    axes.set_ylabel(unit)
    axes.legend()
    figure.savefig(path, dpi=150)


def plot_lines(path: Path, panels: Mapping[str, tuple[Sequence[int], Sequence[Result]]], unit: str) -> None:
    """Medians against a quantity, one panel for each: its name to its values and their results."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (quantity, (values, results)) in zip(places, panels.items(), strict=True):
        for name in results[0].rates:
            axes.plot(values, [result.median(name) for result in results], marker="o", label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, labels=[str(value) for value in values])
        axes.set_ylim(bottom=0)
        axes.set_xlabel(quantity)
        axes.set_ylabel(unit)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=150)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
