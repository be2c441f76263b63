"""Time and peak memory from process start to the first token, beside those of `import torch` alone.

    python -m benchmarks.startup [CHECKPOINT ...] [--rounds 5]

Each figure is the median over fresh processes, run in turn. CHECKPOINT: names of the package `checkpoints`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import checkpoints

REPORT = "import json, resource; print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"
TORCH = f"import torch\n{REPORT}"
FIRST_TOKEN = (
    "import transduce\n"
    "llm = transduce.LLM({path!r})\n"
    "prompt = {prompt}\n"
    "output = llm.generate(prompt, transduce.SamplingParams(max_tokens=1), use_tqdm=False)\n"
    f"assert output[0].outputs[0].token_ids\n{REPORT}"
)
SILENCE = '{"multi_modal_data": {"audio": (__import__("numpy").zeros(16000, "float32"), 16000)}}'


def measure(program: str) -> tuple[float, float]:
    """Seconds and MiB of one fresh process."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return time.perf_counter() - begin, json.loads(done.stdout.splitlines()[-1]) / 1024


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["bart-g2p", "flan-t5-small-titler", "whisper-tiny.en"])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    programs = {"import torch": TORCH}
    for name in args.names:
        prompt = SILENCE if name.startswith("whisper") else '"transformer"'
        programs[name] = FIRST_TOKEN.format(path=str(checkpoints.path(name)), prompt=prompt)
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name, program in programs.items():
            figures[name].append(measure(program))
    for name, each in figures.items():
        seconds, memory = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"{name:24} {seconds:6.2f} s  {memory:6.0f} MiB")


if __name__ == "__main__":
    main()
