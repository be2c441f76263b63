"""Time and peak memory from process start to the first token, beside `import torch` alone and beside CTranslate2.

    python -m benchmarks.startup [MODEL ...] [--quantization int8] [--rounds 5]

Each figure is the median over fresh processes, run in turn. MODEL: a name of the package `checkpoints`, a folder such
as `transduce quantize` writes, or a shape of `benchmarks.models`, which runs with CTranslate2 too, in int8.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import checkpoints
from benchmarks.convert import converted, random_checkpoint
from benchmarks.models import CONFIGS

REPORT = "import json, resource; print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"
TORCH = f"import torch\n{REPORT}"
FIRST_TOKEN = (
    "import transduce\n"
    "llm = transduce.LLM({path!r}, **{options})\n"
    "output = llm.generate({prompt}, transduce.SamplingParams(max_tokens=1), use_tqdm=False)\n"
    f"assert output[0].outputs[0].token_ids\n{REPORT}"
)
CTRANSLATE2 = (
    "import ctranslate2\n"
    "model = ctranslate2.Translator({path!r}, 'cpu')\n"
    "answer = model.translate_batch([['t7', 't8']], beam_size=1, min_decoding_length=1, max_decoding_length=1)\n"
    f"assert answer[0].hypotheses[0]\n{REPORT}"
)
SILENCE = '{"multi_modal_data": {"audio": (__import__("numpy").zeros(16000, "float32"), 16000)}}'
IDS = '{"prompt_token_ids": [7, 8]}'
POOL = 64 << 20
"""Bytes of the KV pool, fixed so that memory can be compared."""


def programs(names: list[str], quantization: str | None) -> dict[str, str]:
    """What to run, by what it is called in the table."""
    made = {"import torch": TORCH}
    for name in names:
        options = {"quantization": quantization, "kv_cache_bytes": POOL}
        if name in CONFIGS:
            path, prompt = random_checkpoint(name), IDS
            made[f"{name}, CTranslate2"] = CTRANSLATE2.format(path=str(converted(path, "int8")))
        elif Path(name).is_dir():
            path, prompt = Path(name), IDS
        else:
            path, prompt = checkpoints.path(name), SILENCE if name.startswith("whisper") else '"transformer"'
        made[name] = FIRST_TOKEN.format(path=str(path), options=options, prompt=prompt)
    return made


def measure(program: str) -> tuple[float, float]:
    """Seconds and MiB of one fresh process."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return time.perf_counter() - begin, json.loads(done.stdout.splitlines()[-1]) / 1024


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="*", default=["bart-g2p", "flan-t5-small-titler", "whisper-tiny.en", "bart-base"]
    )
    parser.add_argument("--quantization", help="ours: int8, or none")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    runs = programs(args.models, args.quantization)
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, program in runs.items():
            figures[name].append(measure(program))
    print(f"medians of {args.rounds}; KV pool {POOL >> 20} MiB, which is in ours")
    for name, each in figures.items():
        seconds, memory = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"{name:28} {seconds:6.2f} s  {memory:6.0f} MiB")


if __name__ == "__main__":
    main()
