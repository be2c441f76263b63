"""What the commands share: their arguments, and the engines these name, on text models."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.columns import Column, Work
from benchmarks.models import CONFIGS
from benchmarks.report import read_settings
from benchmarks.worker import Engine, Worker

UNIT = "tokens/s"
PEERS = ("ctranslate2", "transformers", "transformers-clairvoyant")


def parser(description: str, rounds: int, models: Sequence[str] = tuple(CONFIGS)) -> argparse.ArgumentParser:
    """The arguments that all commands take. models: their names, the default first."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", choices=models, default=models[0])
    made.add_argument("--dtype", default="bfloat16", help="ours; CTranslate2's is float32 if ours is, else int8")
    made.add_argument("--quantization", help="ours: int8, or none")
    made.add_argument("--max-num-seqs", type=int, default=64, help="ours: sequences decoded side by side")
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--seed", type=int, default=int(time.time()), help="of the inputs; default: another every time")
    made.add_argument("--json", type=Path, help="write the results to this file")
    return made


def add_comparison(to: argparse.ArgumentParser) -> None:
    """The arguments of a command that runs peers."""
    to.add_argument("--plot", type=Path, help="write a plot to this PNG file")
    to.add_argument(
        "--settings",
        type=lambda name: read_settings(Path(name)),
        help="take the peers' from results in this file: no sweep",
    )


def add_peers(to: argparse.ArgumentParser) -> None:
    """The argument that names the peers."""
    to.add_argument("--peer", action="append", choices=PEERS, help="may be repeated; default: ctranslate2")


def numbers(listed: str) -> list[int]:
    """`1,32` as numbers."""
    return [int(number) for number in listed.split(",")]


def options(args: argparse.Namespace) -> dict[str, Any]:
    """Our engine arguments."""
    return {"dtype": args.dtype, "max_num_seqs": args.max_num_seqs, "quantization": args.quantization}


def precision(args: argparse.Namespace) -> str:
    """What our weights are."""
    return str(args.quantization or args.dtype)


def peer_quantization(args: argparse.Namespace) -> str:
    """What CTranslate2's weights are."""
    return "float32" if precision(args) == "float32" else "int8"


def ours(args: argparse.Namespace) -> Worker:
    """Us, with the options given."""
    return Worker("transduce", _ours, args.model, options(args))


def peers(args: argparse.Namespace) -> list[Worker]:
    """Those that are named; the first conversion takes minutes."""
    return [_peer(name, args) for name in args.peer or PEERS[:1]]


def drawing(args: argparse.Namespace, column: Column, rng: np.random.Generator) -> Callable[[], list[Work]]:
    """Draws the column's requests, new at each call."""
    return lambda: column.draw(CONFIGS[args.model]["vocab_size"], rng)


def _peer(name: str, args: argparse.Namespace) -> Worker:
    if name == "ctranslate2":
        from benchmarks.convert import converted, random_checkpoint

        quantization = peer_quantization(args)
        folder = converted(random_checkpoint(args.model), quantization)
        return Worker(f"{name} {quantization}", _ctranslate2, folder)
    return Worker(f"{name} {args.dtype}", _transformers, args.model, args.dtype, name.endswith("clairvoyant"))


# What runs in the workers: an engine's packages are imported in its own process alone.


def _ours(model: str, options: dict[str, Any]) -> Engine:
    from benchmarks.ours import Text

    return Text(CONFIGS[model], options)


def _ctranslate2(folder: Path) -> Engine:
    from benchmarks.ctranslate2_peer import CTranslate2

    return CTranslate2(folder)


def _transformers(model: str, dtype: str, clairvoyant: bool) -> Engine:
    from benchmarks.transformers_peer import Transformers, output_length, source_length

    return Transformers(CONFIGS[model], dtype, output_length if clairvoyant else source_length)
