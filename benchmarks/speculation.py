"""Speculation on and off, in turn: a BART that copies its source with replacements, and one that has nothing to copy.

    python -m benchmarks.speculation [--dtype bfloat16] [--quantization int8] [--batch 1,8,32] [--rounds 5]

`copy` is the task of `benchmarks.copying`, `random` a model with random weights on random sources; both have
bart-base's shape. Every round has new requests, the same for both ways, whose answers are compared. Figures are
medians over the rounds: tokens and decoder steps of a round, tokens per second with the ratio's range, and of the
drafts how many tokens each had and how many of them were right.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import numbers, parser
from benchmarks.copying import plant
from benchmarks.models import CONFIGS, SPECIAL_IDS, Config
from transduce import LLM, SamplingParams

Draw = Callable[[np.random.Generator], list[int]]
POOL = 1 << 30


@dataclass(frozen=True, slots=True)
class Round:
    """What one batch took. drafted, accepted: tokens."""

    tokens: int
    steps: int
    seconds: float
    drafts: int
    drafted: int
    accepted: int


class Pair:
    """One checkpoint in two engines: without speculation and with it."""

    def __init__(self, folder: Path, params: SamplingParams, options: dict[str, Any]) -> None:
        options = {"skip_tokenizer_init": True, "kv_cache_bytes": POOL, **options}
        self._params = params
        self._engines = [LLM(folder, speculate=speculate, **options) for speculate in (False, True)]

    def round(self, sources: Sequence[list[int]], first: int) -> tuple[Round, Round]:
        """Both ways on the same requests. first: which one begins. Raises AssertionError where answers differ."""
        done = {at: _measured(self._engines[at], self._params, sources) for at in (first, 1 - first)}
        assert done[0][1] == done[1][1], "speculation has changed an answer"
        return done[0][0], done[1][0]


def _measured(llm: LLM, params: SamplingParams, sources: Sequence[list[int]]) -> tuple[Round, list[list[int]]]:
    before, start = _counts(llm), time.perf_counter()
    outputs = llm.generate([{"prompt_token_ids": source} for source in sources], params, use_tqdm=False)
    seconds = time.perf_counter() - start
    answers = [list(output.outputs[0].token_ids) for output in outputs]
    steps, drafts, drafted, accepted = (now - then for now, then in zip(_counts(llm), before, strict=True))
    return Round(sum(map(len, answers)), steps, seconds, drafts, drafted, accepted), answers


def _counts(llm: LLM) -> tuple[int, int, int, int]:
    graphs, counters = llm.engine.runner.graphs, llm.engine.scheduler.counters
    return graphs.replays + graphs.eager, counters.drafts, counters.drafted, counters.accepted


def compare(pair: Pair, draw: Draw, batch: int, args: argparse.Namespace) -> list[tuple[Round, Round]]:
    """So many rounds after one that nobody counts."""
    rng = np.random.default_rng(args.seed)
    rounds = [pair.round([draw(rng) for _ in range(batch)], at % 2) for at in range(args.rounds + 1)]
    return rounds[1:]


def row(task: str, batch: int, rounds: Sequence[tuple[Round, Round]]) -> str:
    """The rounds as one line of the table."""
    plain, drafting = zip(*rounds, strict=True)
    ratios = [off.seconds / on.seconds for off, on in rounds]
    rates = [statistics.median(each.tokens / each.seconds for each in way) for way in (plain, drafting)]
    steps = [statistics.median(each.steps for each in way) for way in (plain, drafting)]
    drafts, drafted, accepted = (
        sum(getattr(each, name) for each in drafting) for name in ("drafts", "drafted", "accepted")
    )
    lengths = f"{drafted / drafts:.1f} | {accepted / drafts:.1f}" if drafts else "- | -"
    return (
        f"| {task} | {batch} | {plain[0].tokens} | {steps[0]:.0f} | {steps[1]:.0f} | {rates[0]:.0f} | {rates[1]:.0f} | "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {lengths} |"
    )


def copying(folder: Path, config: Config, length: int, options: dict[str, Any]) -> tuple[Pair, Draw]:
    """The engines that copy, and their sources."""
    task = plant(config, folder)
    params = SamplingParams(temperature=0.0, max_tokens=length + 1)
    return Pair(folder, params, options), lambda rng: task.source(length, config, rng)


def nothing_to_copy(folder: Path, config: Config, length: int, options: dict[str, Any]) -> tuple[Pair, Draw]:
    """Engines with random weights, and random sources."""
    (folder / "config.json").write_text(json.dumps(config))
    params = SamplingParams(temperature=0.0, max_tokens=length // 2, ignore_eos=True)
    pair = Pair(folder, params, {"load_format": "dummy", **options})
    return pair, lambda rng: rng.integers(SPECIAL_IDS, config["vocab_size"], length).tolist()


def main() -> None:
    """Print a table."""
    arguments = parser(__doc__ or "", rounds=5, models=("bart-base",))
    arguments.add_argument("--batch", type=numbers, default=[1, 8, 32], help="requests at once: 1,8,32")
    arguments.add_argument("--source", type=int, default=128, help="tokens of a source")
    args = arguments.parse_args()
    options = {"dtype": args.dtype, "quantization": args.quantization, "max_num_seqs": args.max_num_seqs}
    results = {}
    print(f"{args.dtype}, quantization {args.quantization}, {args.rounds} rounds, sources of {args.source} tokens")
    print("| task | requests | tokens | steps off | on | tokens/s off | on | ratio | drafted | right |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for task, made in (("copy", copying), ("random", nothing_to_copy)):
        with tempfile.TemporaryDirectory() as folder:
            pair, draw = made(Path(folder), CONFIGS[args.model], args.source, options)
        for batch in args.batch:
            rounds = compare(pair, draw, batch, args)
            print(row(task, batch, rounds), flush=True)
            results[f"{task} {batch}"] = [[asdict(off), asdict(on)] for off, on in rounds]
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
