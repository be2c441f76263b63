"""Audio seconds per second on short clips, beside faster-whisper's, with a trained Whisper.

    python -m benchmarks.speech --model whisper-tiny.en --quantization int8 [--at-once 1,16] [--clips 16]
        [--speech FOLDER] [--rounds 5] [--json FILE] [--plot FILE]

Clips are handed over one by one, or so many in a call. Both decode greedily, without voice-activity filter, without
timestamps, and know the language. FOLDER holds WAV files of at most 30 s in English.
"""

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import checkpoints
from benchmarks import command, report
from benchmarks.clips import draw, load
from benchmarks.contest import contest
from benchmarks.convert import converted
from benchmarks.worker import Engine, Worker

SAMPLES = Path(__file__).parents[1] / "samples"
UNIT = "audio s/s"
LANGUAGE = "en"


def main() -> None:
    """Print a table."""
    parser = command.parser(__doc__ or "", rounds=5, models=("whisper-tiny.en", "whisper-base"))
    parser.add_argument("--at-once", type=command.numbers, default="1,16", help="clips in a call")
    parser.add_argument("--clips", type=int, default=16, help="clips in a round")
    parser.add_argument("--speech", type=Path, default=SAMPLES, help="default: this repository's samples")
    command.add_comparison(parser)
    args = parser.parse_args()
    rng, clips = np.random.default_rng(args.seed), load(args.speech)
    with ExitStack() as stack:
        workers = [stack.enter_context(each) for each in engines(args)]
        results = [
            contest(
                workers,
                f"{size} at once",
                partial(draw, clips, args.clips, size, rng),
                partial(draw, clips, 1, 1, rng),
                args.rounds,
                args.settings,
            )
            for size in args.at_once
        ]
        hits = workers[0].ask("cache_hits")
    print(f"\n{args.model} {command.precision(args)}, seed {args.seed}, encoder-cache hits: {hits}")
    print(report.table(results, UNIT))
    if args.json:
        report.write_json(args.json, results, seed=args.seed, cache_hits=hits)
    if args.plot:
        report.plot_bars(args.plot, results, UNIT)


def engines(args: argparse.Namespace) -> list[Worker]:
    """Us and the peer, on one checkpoint."""
    checkpoint, theirs = checkpoints.path(args.model), command.peer_quantization(args)
    return [
        Worker("transduce", _ours, checkpoint, command.options(args)),
        Worker(f"faster-whisper {theirs}", _faster_whisper, converted(checkpoint, theirs), theirs),
    ]


def _ours(checkpoint: Path, options: dict[str, Any]) -> Engine:
    from benchmarks.ours import Speech

    return Speech(checkpoint, options, LANGUAGE)


def _faster_whisper(folder: Path, compute_type: str) -> Engine:
    from benchmarks.faster_whisper_peer import FasterWhisper

    return FasterWhisper(folder, compute_type, LANGUAGE)


if __name__ == "__main__":
    main()
