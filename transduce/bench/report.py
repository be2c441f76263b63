"""Figures as a table and as JSON. Knows neither servers nor `LLM`."""

import io
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from transduce.bench.figures import Figures, Spread
from transduce.errors import ConfigError

Rows = Mapping[str, Sequence[str]]
"""By name, a cell for each level; empty where a figure is not known."""

RATES: Mapping[str, Callable[[Figures], float | None]] = {
    "completed requests": lambda found: found.completed,
    "failed requests": lambda found: found.failed,
    "duration (s)": lambda found: found.duration,
    "prompt tokens": lambda found: found.prompt_tokens,
    "output tokens": lambda found: found.output_tokens,
    "requests/s": lambda found: found.request_throughput,
    "goodput (requests/s)": lambda found: found.goodput,
    "output tokens/s": lambda found: found.output_throughput,
    "total tokens/s": lambda found: found.total_throughput,
    "audio seconds/s": lambda found: found.audio_throughput,
}
STATISTICS = ("mean", "median", "p99")
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}


def rates(levels: Mapping[str, Figures]) -> Rows:
    """What was done, and how much of it in a second."""
    rows = {name: [_number(of(found)) for found in levels.values()] for name, of in RATES.items()}
    return {name: cells for name, cells in rows.items() if any(cells)}


def latencies(levels: Mapping[str, Figures]) -> Rows:
    """Mean, median and 99th percentile of each latency."""
    rows: dict[str, list[str]] = {}
    for field, name in LATENCIES.items():
        spreads: list[Spread | None] = [getattr(found, field) for found in levels.values()]
        for statistic in STATISTICS if any(spreads) else ():
            rows[f"{name} {statistic} (ms)"] = [_number(getattr(each, statistic, None)) for each in spreads]
    return rows


def grid(heads: Sequence[str], rows: Rows) -> str:
    """Named rows under heads, drawn for a terminal of any width."""
    drawn = Table()
    drawn.add_column("")
    for head in heads:
        drawn.add_column(head, justify="right", no_wrap=True)
    for name, cells in rows.items():
        drawn.add_row(name, *cells)
    out = io.StringIO()
    console = Console(file=out, width=1 << 16)
    console.print(drawn)
    return out.getvalue().rstrip("\n")


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """The document, with the command but for keys, the date and the version. Raises ConfigError where it cannot be."""
    about = {"command": _command(), "date": time.strftime("%Y-%m-%d %H:%M:%S %z"), "transduce": version("transduce")}
    text = json.dumps({**about, **document}, indent=1, default=str)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _command() -> list[str]:
    """As it was given, without the key, since files are passed on."""
    return [
        re.sub("(?<=^--api-key=).*", "…", word) if last != "--api-key" else "…"
        for last, word in pairwise(["", *sys.argv])
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
