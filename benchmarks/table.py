"""Tokens per second, end to end, beside the peers'; and how much of what the machine allows that is.

    python -m benchmarks.table --model bart-base --quantization int8 --columns B=1,8,32,64,S=1000,mixed
        [--peer ctranslate2] [--rounds 5] [--json FILE] [--plot FILE] [--profile]

Columns are as `columns` says. The roofline is what `floor` says, at the bandwidth and rate measured in this run.
`transformers-clairvoyant` knows output lengths beforehand and batches by them.
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks import command, report
from benchmarks.columns import Column, batch, parse, wanted
from benchmarks.contest import Result, contest
from benchmarks.worker import Worker

COLUMNS = "B=1,8,32,64,S=1000,mixed"


def main() -> None:
    """Print a table, or a profile of each column."""
    parser = command.parser(__doc__ or "", rounds=5)
    command.add_comparison(parser)
    command.add_peers(parser)
    parser.add_argument("--columns", type=parse, default=COLUMNS)
    parser.add_argument("--profile", action="store_true", help="print where our steps' time goes, and no table")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    with ExitStack() as stack:
        ours = stack.enter_context(command.ours(args))
        if args.profile:
            profile(ours, args, rng)
        else:
            compare([ours, *(stack.enter_context(peer) for peer in command.peers(args))], args, rng)


def compare(workers: Sequence[Worker], args: argparse.Namespace, rng: np.random.Generator) -> None:
    """Run the columns, and print and write what came out."""
    results = run_columns(workers, args.columns, args, rng)
    hits = workers[0].ask("cache_hits")
    floors = {column.name: roofline(column, args, workers[0], rng) for column in args.columns}
    memory = {worker.name: worker.peak_bytes() for worker in workers}
    print(f"\n{args.model} {command.precision(args)}, seed {args.seed}, encoder-cache hits: {hits}")
    print(report.table(results, command.UNIT, floors))
    print("peak memory, all settings tried: " + ", ".join(f"{n} {b / 2**20:.0f} MiB" for n, b in memory.items()))
    if args.json:
        more: dict[str, Any] = {"cache_hits": hits, "roofline": floors, "peak_bytes": memory}
        report.write_json(args.json, results, seed=args.seed, **more)
    if args.plot:
        report.plot_bars(args.plot, results, command.UNIT)


def run_columns(
    workers: Sequence[Worker], columns: Sequence[Column], args: argparse.Namespace, rng: np.random.Generator
) -> list[Result]:
    """A contest for each column."""
    warm_up = command.drawing(args, batch(2, 16, 4), rng)
    return [
        contest(workers, each.name, command.drawing(args, each, rng), warm_up, args.rounds, args.settings)
        for each in columns
    ]


def roofline(column: Column, args: argparse.Namespace, worker: Worker, rng: np.random.Generator) -> float:
    """Tokens per second that the machine allows; for lengths as drawn now."""
    work = command.drawing(args, column, rng)()
    encode, decode = worker.ask("floors", work, command.precision(args), args.max_num_seqs)
    return float(wanted(work) / (encode + decode))


def profile(ours: Worker, args: argparse.Namespace, rng: np.random.Generator) -> None:
    """Where time goes, column by column."""
    from benchmarks.profiling import show

    for column in args.columns:
        draw = command.drawing(args, column, rng)
        rate = max(ours.rate(draw()) for _ in range(2))
        print(f"\n{column.name}: {rate:.4g} {command.UNIT} without the profiler")
        show(ours.ask("profile", draw()))


if __name__ == "__main__":
    main()
