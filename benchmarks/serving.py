"""How long requests take under Poisson arrivals: `transduce serve` beside a CTranslate2 worker behind HTTP.

    python -m benchmarks.serving --model bart-base --quantization int8 [--requests 200] [--rounds 5] [--json FILE]

The worker (`waiting_worker`) takes whatever waits into one batch; its largest batch and its number of threads are the
best of a sweep, with all requests waiting from the start. The rate is the highest that it holds: of its throughput in
that sweep, so many steps of 5 % less until the run takes at most a tenth longer than its requests took to arrive.
Then both get the same requests, lengths as in the column `mixed`, at the same moments, in turn. Answers are unstreamed.
Our server does not speculate, so that both do the same work.
"""

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import inf

import httpx
import numpy as np

from benchmarks import command, report
from benchmarks.columns import Column
from benchmarks.convert import converted, random_checkpoint
from benchmarks.models import CONFIGS
from benchmarks.sweep import Settings, climb
from benchmarks.worker import WorkerError, cores
from transduce.bench.calls import Call, Style
from transduce.bench.datasets import Text
from transduce.bench.figures import Figures, figures
from transduce.bench.load import Level, connection, run

STEP, SLACK = 0.05, 1.1
NAMES = ("transduce", "ctranslate2")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Requests by their seed, which also draws when they arrive."""

    model: str
    vocab: int
    requests: int

    def calls(self, seed: int) -> list[Call]:
        """New ones for each seed."""
        work = Column("mixed", self.requests).draw(self.vocab, np.random.default_rng(seed))
        fields = {"temperature": 0.0, "ignore_eos": True}
        texts = [Text(each.source, {**fields, "max_tokens": each.length}) for each in work]
        return [Style(self.model, stream=False).call(text) for text in texts]

    def measure(self, url: str, rate: float, seed: int) -> Figures:
        """What a server makes of them. Raises WorkerError where one failed."""

        async def send() -> Figures:
            async with connection(url, None, 600) as client:
                rng = np.random.default_rng(seed)
                return figures(await run(client, self.calls(seed), Level(rate), rng, lambda record: None))

        found = asyncio.run(send())
        if found.failed:
            raise WorkerError(f"{url}: {found.errors}")
        return found

    def warm_up(self, url: str) -> None:
        """A few requests that do not count."""
        replace(self, requests=16).measure(url, inf, 0)

    def held(self, url: str, rate: float, seed: int) -> bool:
        """Whether a server's queue does not grow."""
        arrived = Level(rate).dues(self.requests, np.random.default_rng(seed))[-1]
        return self.measure(url, rate, seed).duration <= SLACK * arrived


def main() -> None:
    """Print a table."""
    parser = command.parser(__doc__ or "", rounds=5)
    parser.add_argument("--requests", type=int, default=200, help="in a round")
    parser.add_argument("--rate", type=float, help="requests per second; default: the highest that the worker holds")
    args = parser.parse_args()
    inputs = Inputs(args.model, CONFIGS[args.model]["vocab_size"], args.requests)
    trials = climb({"workers": (1, cores()), "max_batch": (32, 64, 16, 8)}, lambda each: saturated(args, inputs, each))
    print(f"the worker: {trials[0].rate:.3g} requests/s with {trials[0].settings}, best of {len(trials)}")
    with theirs(args, trials[0].settings) as peer, ours(args) as us:
        rate = args.rate or highest(inputs, peer, trials[0].rate, args.seed)
        rounds = compete(inputs, dict(zip(NAMES, (us, peer), strict=True)), rate, args.rounds, args.seed)
    show(rounds, rate)
    if args.json:
        found = [{name: asdict(each) for name, each in turn.items()} for turn in rounds]
        report.write_json(args.json, [], seed=args.seed, rate=rate, sweep=[*map(asdict, trials)], rounds=found)


def saturated(args: argparse.Namespace, inputs: Inputs, settings: Settings) -> float:
    """Requests per second of the worker, all requests waiting from the start."""
    with theirs(args, settings) as url:
        inputs.warm_up(url)
        return inputs.measure(url, inf, args.seed).request_throughput


def highest(inputs: Inputs, url: str, most: float, seed: int) -> float:
    """The rate to compare at: see the module."""
    inputs.warm_up(url)
    for step in range(1, round(1 / STEP)):
        rate = most * (1 - step * STEP)
        if inputs.held(url, rate, seed + step):
            return rate
    raise WorkerError(f"the worker holds no rate near its {most:.3g} requests/s")


def compete(inputs: Inputs, urls: Mapping[str, str], rate: float, rounds: int, seed: int) -> list[dict[str, Figures]]:
    """Rounds in which all get the same requests, every other one in reverse order. Prints as it goes."""
    for url in urls.values():
        inputs.warm_up(url)
    found = []
    for turn in range(rounds):
        order = list(urls.items())[:: 1 if turn % 2 == 0 else -1]
        found.append({name: inputs.measure(url, rate, seed + 100 + turn) for name, url in order})
        shown = ", ".join(f"{name} {_pair(found[-1][name])}" for name in urls)
        print(f"round {turn + 1}, p50 / p99 ms: {shown}", flush=True)
    return found


def show(rounds: Sequence[Mapping[str, Figures]], rate: float) -> None:
    """Medians over the rounds, and the medians of the ratios."""
    print(f"\n{rate:.3g} requests/s{'':6}{'transduce':>12}{'ctranslate2':>14}{'ratio':>8}")
    for statistic in ("median", "p99"):
        ours, peers = ([latency(turn[name], statistic) for turn in rounds] for name in NAMES)
        ratio = statistics.median(us / them for us, them in zip(ours, peers, strict=True))
        print(f"{statistic + ' ms':18}{statistics.median(ours):12.4g}{statistics.median(peers):14.4g}{ratio:8.2f}")


def latency(found: Figures, statistic: str) -> float:
    """Of whole requests, in milliseconds."""
    return float(getattr(found.e2e, statistic))


def _pair(found: Figures) -> str:
    return f"{latency(found, 'median'):.4g} / {latency(found, 'p99'):.4g}"


@contextmanager
def ours(args: argparse.Namespace) -> Iterator[str]:
    """The URL of our server, with the options given."""
    flags = ["--dtype", args.dtype, "--max-num-seqs", str(args.max_num_seqs), "--log-level", "warning"]
    flags += ["--quantization", args.quantization] if args.quantization else []
    flags += ["--served-model-name", args.model, "--max-waiting", "100000", "--no-speculate"]
    program = "import sys; from transduce.cli import main; sys.exit(main())"
    with launched(["-c", program, "serve", str(random_checkpoint(args.model)), *flags]) as url:
        yield url


@contextmanager
def theirs(args: argparse.Namespace, settings: Settings) -> Iterator[str]:
    """The URL of the worker."""
    folder = converted(random_checkpoint(args.model), command.peer_quantization(args))
    flags = ["--workers", str(settings["workers"]), "--max-batch", str(settings["max_batch"])]
    with launched(["-m", "benchmarks.waiting_worker", str(folder), *flags]) as url:
        yield url


@contextmanager
def launched(arguments: Sequence[str], patience: float = 300.0) -> Iterator[str]:
    """A server of this interpreter on a free port, once it is ready; it is ended afterwards. Raises WorkerError."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, *arguments, "--port", str(port)])
    try:
        deadline = time.monotonic() + patience
        while not _ready(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise WorkerError(f"{' '.join(arguments)}: not ready, exit code {process.returncode}")
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    main()
