"""Milliseconds of one decode step and of the encoder, end to end, beside what the machine allows.

    python -m benchmarks.roofline --model bart-base --quantization int8 [--batches 1,32] [--rounds 5] [--json FILE]

Sources have 128 tokens. The encoder's time is that of a request for one token less a step's, which is what each token
after the first takes. The bounds are as `floor` says, at the bandwidth and rate measured beside each round.
"""

import argparse
import statistics
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks import command, report
from benchmarks.columns import SOURCE, TOKENS, batch
from benchmarks.worker import Worker

HEADS = "".join(f"{head:>10}" for head in ("", "encoder", "bound", "by", "step", "bound", "by"))


@dataclass(frozen=True, slots=True)
class Round:
    """Milliseconds of an encoder pass and of a decode step: taken, and at least necessary."""

    encoder: float
    encoder_floor: float
    step: float
    step_floor: float


def main() -> None:
    """Print a table."""
    parser = command.parser(__doc__ or "", rounds=5)
    parser.add_argument("--batches", type=command.numbers, default="1,32")
    args = parser.parse_args()
    rng, taken = np.random.default_rng(args.seed), {}
    print(f"{args.model} {command.precision(args)}, milliseconds, medians of {args.rounds}")
    print(HEADS)
    with command.ours(args) as ours:
        for size in args.batches:
            measure(ours, size, args, rng)  # the first is slower
            taken[size] = [measure(ours, size, args, rng) for _ in range(args.rounds)]
            show(size, taken[size])
    if args.json:
        rounds = {size: [asdict(each) for each in those] for size, those in taken.items()}
        report.write_json(args.json, [], seed=args.seed, rounds=rounds)


def measure(ours: Worker, size: int, args: argparse.Namespace, rng: np.random.Generator) -> Round:
    """One round, on new inputs."""
    first, all_ = (command.drawing(args, batch(size, SOURCE, tokens), rng)() for tokens in (1, TOKENS))
    encode_floor, decode_floor = ours.ask("floors", all_, command.precision(args), size)
    to_first = ours.seconds(first)
    step = (ours.seconds(all_) - to_first) / (TOKENS - 1)
    return Round(*(1e3 * each for each in (to_first - step, encode_floor, step, decode_floor / TOKENS)))


def show(size: int, rounds: list[Round]) -> None:
    """One line."""
    line = f"{f'B={size}':>10}"
    for name in ("encoder", "step"):
        pairs = [(getattr(each, name), getattr(each, f"{name}_floor")) for each in rounds]
        taken, floor = (statistics.median(column) for column in zip(*pairs, strict=True))
        line += f"{taken:10.2f}{floor:10.2f}{taken / floor:10.2f}"
    print(line)


if __name__ == "__main__":
    main()
