"""Tokens per second of `LLM.generate` on mixed-length requests, beside transformers' `generate`, in one run.

    python -m benchmarks.generate [--requests 64] [--model bart-base] [--dtype bfloat16] [--rounds 3]

Weights are random (speed does not depend on them), source lengths lognormal (median 96, sigma 0.8, 8 to 900), output
lengths forced, lognormal (median 48, sigma 0.7, 4 to 256). Each round draws its requests anew, so nothing is found in
a cache. transformers runs as its users run it at best: sorted by source length (output lengths are not known before),
in static batches of the size that was fastest of those tried, padded, with a KV cache and SDPA; only wanted tokens
count. The second ratio is against batches sorted by output length, which nobody can do who does not know the answers:
what is left of our lead then is not the padding's.
"""

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transduce  # first, as it calms torch's threads before they start; the peer gains as much

# isort: split
import numpy as np
import torch

CONFIGS: dict[str, dict[str, Any]] = {
    "bart-base": {
        "model_type": "bart",
        "architectures": ["BartForConditionalGeneration"],
        "vocab_size": 50265,
        "d_model": 768,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 12,
        "decoder_attention_heads": 12,
        "encoder_ffn_dim": 3072,
        "decoder_ffn_dim": 3072,
        "max_position_embeddings": 1024,
        "decoder_start_token_id": 2,
        "eos_token_id": 2,
        "bos_token_id": 0,
        "pad_token_id": 1,
    }
}
BATCHES = (16, 32, 64)


@dataclass(frozen=True, slots=True)
class Work:
    """One request: source token ids, and how many tokens to generate."""

    source: list[int]
    length: int


def draw(count: int, vocab: int, rng: np.random.Generator) -> list[Work]:
    """Requests with the lengths the module's docstring gives."""
    sources = np.clip(rng.lognormal(np.log(96), 0.8, count), 8, 900).astype(int)
    lengths = np.clip(rng.lognormal(np.log(48), 0.7, count), 4, 256).astype(int)
    return [Work(rng.integers(4, vocab, s).tolist(), int(n)) for s, n in zip(sources, lengths, strict=True)]


class Ours:
    """`LLM.generate` with random weights."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self._llm = transduce.LLM(str(folder), dtype=dtype, load_format="dummy", skip_tokenizer_init=True)

    def run(self, work: list[Work]) -> int:
        """All of it; the tokens generated."""
        params = [transduce.SamplingParams(temperature=0.0, max_tokens=w.length, ignore_eos=True) for w in work]
        outputs = self._llm.generate([{"prompt_token_ids": w.source} for w in work], params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)


class Transformers:
    """`generate` on static batches."""

    def __init__(self, config: dict[str, Any], dtype: str) -> None:
        from transformers import AutoConfig, AutoModelForSeq2SeqLM

        model_config = AutoConfig.for_model(**config)
        self._model = AutoModelForSeq2SeqLM.from_config(model_config, dtype=getattr(torch, dtype)).eval()
        self._pad = config["pad_token_id"]
        self.batch = BATCHES[0]
        self.clairvoyant = False

    def run(self, work: list[Work]) -> int:
        """All of it; the tokens that were wanted."""
        work = sorted(work, key=lambda w: w.length if self.clairvoyant else len(w.source))
        for batch in _batches(work, self.batch):
            self._generate(batch)
        return sum(w.length for w in work)

    def pick_batch(self, work: list[Work]) -> dict[int, float]:
        """Settle on the fastest batch size for such work; tokens per second of each."""
        tried = {}
        for self.batch in BATCHES:
            tried[self.batch] = rate(self, work)
        self.batch = max(tried, key=lambda size: tried[size])
        return tried

    @torch.inference_mode()
    def _generate(self, batch: list[Work]) -> None:
        longest, width = max(w.length for w in batch), max(len(w.source) for w in batch)
        ids = torch.full((len(batch), width), self._pad)
        for row, each in zip(ids, batch, strict=True):
            row[: len(each.source)] = torch.tensor(each.source)
        self._model.generate(
            input_ids=ids,
            attention_mask=(ids != self._pad).long(),
            max_new_tokens=longest,
            min_new_tokens=longest,
            do_sample=False,
            num_beams=1,
        )


def _batches(work: list[Work], size: int) -> Iterator[list[Work]]:
    for start in range(0, len(work), size):
        yield work[start : start + size]


def rate(engine: Ours | Transformers, work: list[Work]) -> float:
    """Tokens per second."""
    start = time.perf_counter()
    tokens = engine.run(work)
    return tokens / (time.perf_counter() - start)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--model", choices=sorted(CONFIGS), default="bart-base")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    config, rng = CONFIGS[args.model], np.random.default_rng(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        ours = Ours(Path(folder), args.dtype)
    ours.run(draw(8, config["vocab_size"], rng))
    ours_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    peer = Transformers(config, args.dtype)
    tried = peer.pick_batch(draw(args.requests, config["vocab_size"], rng))
    print(f"{args.model} {args.dtype}, {args.requests} requests, {torch.get_num_threads()} threads, seed {args.seed}")
    print(f"transformers by batch size: {', '.join(f'{b}: {r:.0f}' for b, r in tried.items())} tokens/s")
    print("transduce  transformers  transformers, sorted by output length   (tokens/s)")
    rounds = []
    for _ in range(args.rounds):
        work = draw(args.requests, config["vocab_size"], rng)
        rounds.append((rate(ours, work), *(_peer_rate(peer, work, knows) for knows in (False, True))))
        print("{:9.0f}  {:12.0f}  {:12.0f}".format(*rounds[-1]))
    fair, best = (statistics.median(each[0] / each[at] for each in rounds) for at in (1, 2))
    print(f"median ratio {fair:.2f}; against known output lengths {best:.2f}")
    print(f"peak memory of a process with transduce alone: {ours_peak:.2f} GiB")


def _peer_rate(peer: Transformers, work: list[Work], clairvoyant: bool) -> float:
    peer.clairvoyant = clairvoyant
    return rate(peer, work)


if __name__ == "__main__":
    main()
