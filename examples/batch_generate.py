"""Best of n: several samples for each line of a file, the likeliest one printed. What fails is said line by line.

Usage: python examples/batch_generate.py MODEL LINES [SAMPLES]
"""

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from transduce import LLM, CompletionOutput, SamplingParams


def likelihood(answer: CompletionOutput) -> float:
    """Mean log-probability of the answer's tokens."""
    assert answer.cumulative_logprob is not None, "logprobs were asked for"
    return answer.cumulative_logprob / len(answer.token_ids)


def main(model: str, lines: str, samples: str = "4") -> None:
    """Print the likeliest sample for each line, with its mean log-probability."""
    console = Console(highlight=False)
    params = SamplingParams(n=int(samples), temperature=0.8, max_tokens=64, logprobs=0, seed=0)
    sources = Path(lines).read_text(encoding="utf-8").splitlines()
    for source, output in zip(sources, LLM(model).generate([*sources], params), strict=True):
        if output.error is not None:
            console.print(Text(f"{source!r}: {output.error}", style="red"))
            continue
        best = max(output.outputs, key=likelihood)
        console.print(Text(f"{likelihood(best):6.2f}  {best.text}"))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python examples/batch_generate.py MODEL LINES [SAMPLES]")
    main(*sys.argv[1:])
