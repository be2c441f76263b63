"""Audio seconds per second on files of any length, beside faster-whisper's, and how long a clip waits while one runs.

    python -m benchmarks.files --model whisper-tiny.en --quantization int8 [--columns 1,16,long,clip]
        [--modes sequential/1,batched-8/5] [--rounds 3] [--json FILE]

Columns: one file of 90 s; 16 files of 60 s at once; one of 10 minutes; and the seconds within which a clip of 3 s is
answered, 95 times in 100, while one of 10 minutes runs. Both sides hear only speech, by the same network, and know the
language. The peer runs in each of its ways: file after file or with so many windows in a batch, with beams or greedy;
files at once go to one worker with all cores, and to as many workers as there are cores. Files are made of
this repository's samples, joined with silences.
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import checkpoints
from benchmarks import command, report
from benchmarks.clips import RATE
from benchmarks.convert import converted
from benchmarks.recordings import Recording, joined, spoken, word_errors
from benchmarks.worker import Worker, cores

SAMPLES = Path(__file__).parents[1] / "samples"
COLUMNS = {"1": (1, 90.0), "16": (16, 60.0), "long": (1, 600.0)}
MODES = tuple(f"{way}/{beams}" for way in ("sequential", "batched-8", "batched-16") for beams in (5, 1))
CLIPS, CLIP = 60, 3.0

Row = tuple[str, Worker, dict[str, Any]]
"""A name, who runs, and with which settings."""


def main() -> None:
    """Print a table for each column."""
    parser = command.parser(__doc__ or "", rounds=3, models=("whisper-tiny.en", "whisper-base"))
    parser.add_argument("--columns", type=lambda listed: listed.split(","), default="1,16,long,clip")
    parser.add_argument("--modes", type=lambda listed: listed.split(","), default=list(MODES), help="of the peer")
    args = parser.parse_args()
    rng, clips = np.random.default_rng(args.seed), spoken(SAMPLES)
    print(f"{args.model} {command.precision(args)}, seed {args.seed}")
    measured = {}
    for column in args.columns:
        with ExitStack() as stack:
            if column == "clip":
                measured[column] = latencies(stack, args, partial(joined, clips, rng=rng))
            else:
                count, seconds = COLUMNS[column]
                draw = partial(drawn, clips, count, seconds, rng)
                measured[column] = rates(column, [*rows(stack, args, count)], draw, args.rounds)
    if args.json:
        args.json.write_text(json.dumps({"machine": report.machine(), "seed": args.seed, "columns": measured}))


def drawn(clips: Sequence[Recording], count: int, seconds: float, rng: np.random.Generator) -> list[Recording]:
    """New files."""
    return [joined(clips, seconds, rng) for _ in range(count)]


def rows(stack: ExitStack, args: argparse.Namespace, files: int) -> Iterator[Row]:
    """We, and the peer in all its ways."""
    checkpoint, theirs = checkpoints.path(args.model), command.peer_quantization(args)
    yield "transduce", stack.enter_context(Worker("transduce", _ours, checkpoint, command.options(args))), {}
    for workers in (1, cores()) if files > 1 else (1,):
        peer = stack.enter_context(Worker("faster-whisper", _peer, converted(checkpoint, theirs), theirs, workers))
        for mode in args.modes:
            way, beams = mode.split("/")
            yield f"{way}, beams {beams}, workers {workers}", peer, {"way": way, "beams": int(beams)}


def rates(column: str, rows: Sequence[Row], draw: Any, rounds: int) -> dict[str, Any]:
    """Audio seconds per second and word error rates, medians of rounds in which all hear the same."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in rows}
    for worker, settings in {worker: settings for _, worker, settings in rows}.items():
        worker.call("texts", [file.samples for file in draw()], **settings)  # not timed: the first run of a process
    for turn in range(rounds):
        files = draw()
        total = sum(len(file.samples) for file in files) / RATE
        for name, worker, settings in rows if turn % 2 == 0 else reversed(rows):
            heard, seconds = worker.call("texts", [file.samples for file in files], **settings)
            found[name].append((total / seconds, word_errors(files, heard)))
            print(
                f"{column:6} round {turn + 1}  {found[name][-1][0]:7.1f} {found[name][-1][1]:7.2%}  {name}", flush=True
            )
    ours = [rate for rate, _ in found[rows[0][0]]]
    print(f"\n{column:42} audio s/s  word errors  we are faster by")
    for name, pairs in found.items():
        rate, wrong = (statistics.median(each) for each in zip(*pairs, strict=True))
        by = statistics.median(us / them for us, (them, _) in zip(ours, pairs, strict=True))
        print(f"{name:42} {rate:9.1f} {wrong:12.2%} {by:17.2f}")
    return dict(found)


def latencies(stack: ExitStack, args: argparse.Namespace, draw: Any) -> dict[str, list[float]]:
    """Seconds that a clip waits for its answer, again and again, while a long file runs."""
    checkpoint, theirs = checkpoints.path(args.model), command.peer_quantization(args)
    ways: list[Row] = [("transduce", Worker("transduce", _live, checkpoint, command.options(args)), {})]
    peer = Worker("faster-whisper", _peer, converted(checkpoint, theirs), theirs, cores())
    ways += [(mode, peer, dict(zip(("way", "beams"), mode.split("/"), strict=True))) for mode in args.modes]
    found: dict[str, list[float]] = {}
    for worker in {worker for _, worker, _ in ways}:
        stack.enter_context(worker)
    for name, worker, settings in ways:
        short = [draw(seconds=CLIP).samples[: int(CLIP * RATE)] for _ in range(CLIPS)]
        worker.call("waits", draw(seconds=30.0).samples, short[:2], **settings)
        found[name], _ = worker.call("waits", draw(seconds=COLUMNS["long"][1]).samples, short, **settings)
        tenth = statistics.quantiles(found[name], n=20)
        print(
            f"clip: p50 {statistics.median(found[name]):.3f} s, p95 {tenth[-1]:.3f} s, {len(found[name])} times  {name}"
        )
    return found


# What runs in the workers.


def _ours(checkpoint: Path, options: dict[str, Any]) -> Any:
    from benchmarks.ours import Files

    return Files(checkpoint, options)


def _live(checkpoint: Path, options: dict[str, Any]) -> Any:
    from benchmarks.ours import Live

    return Live(checkpoint, options)


def _peer(folder: Path, compute_type: str, workers: int) -> Any:
    from benchmarks.faster_whisper_peer import Files

    return Files(folder, compute_type, workers)


if __name__ == "__main__":
    main()
