"""Tokens per second against batch (128 source tokens) and against context (8 requests), beside the peers'.

python -m benchmarks.curves --model bart-base --quantization int8 [--plot FILE] [--json FILE] [--rounds 3]
"""

from contextlib import ExitStack

import numpy as np

from benchmarks import command, report
from benchmarks.columns import BATCH, batch
from benchmarks.table import run_columns

BATCHES = tuple(2**power for power in range(9))
CONTEXTS = tuple(2**power for power in range(4, 11))


def main() -> None:
    """Print two tables, and plot them."""
    parser = command.parser(__doc__ or "", rounds=3)
    command.add_comparison(parser)
    command.add_peers(parser)
    parser.set_defaults(max_num_seqs=max(BATCHES))
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    with ExitStack() as stack:
        workers = [stack.enter_context(each) for each in (command.ours(args), *command.peers(args))]
        by_batch = run_columns(workers, [batch(size) for size in BATCHES], args, rng)
        by_context = run_columns(workers, [batch(BATCH, source) for source in CONTEXTS], args, rng)
        hits = workers[0].ask("cache_hits")
    print(f"\n{args.model} {command.precision(args)}, seed {args.seed}, encoder-cache hits: {hits}")
    print(report.table(by_batch, "by batch"), report.table(by_context, "by context"), sep="\n\n")
    if args.json:
        report.write_json(args.json, [*by_batch, *by_context], seed=args.seed, cache_hits=hits)
    if args.plot:
        panels = {"requests": (BATCHES, by_batch), f"source tokens, {BATCH} requests": (CONTEXTS, by_context)}
        report.plot_lines(args.plot, panels, command.UNIT)


if __name__ == "__main__":
    main()
