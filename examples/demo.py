"""Three trained models, one engine: Whisper hears a clip, BART spells out words, T5 titles an agent's steps.

Usage: python examples/demo.py WHISPER BART T5, the folders of three checkpoints. scripts/demo does all of it.
"""

import shlex
import sys
import wave
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from transduce import LLM, SamplingParams

ROOT = Path(__file__).parent.parent
CLIP = ROOT / "samples" / "sense_and_sensibility_01_austen_64kb-0870.wav"
WORDS = ("transformer", "encoder", "decoder", "attention", "prudently", "leisure", "consider", "power")
STEPS = (
    "I ran the test suite and three tokenizer tests failed because the vocabulary file was missing.",
    "I read the configuration loader to find out where the default timeout comes from.",
    "I renamed the function and updated every place in the repository that calls it.",
)
TITLE = "summarize agent step: "  # what the T5 was trained to see before a step

console = Console(highlight=False)


def load(task: str, folder: str) -> LLM:
    """The engine with the checkpoint in `folder`, announced and timed."""
    console.rule(f"[bold]{task}[/] · {Path(folder).name}")
    start = perf_counter()
    llm = LLM(folder)
    console.print(f"[dim]loaded in {perf_counter() - start:.1f} s[/]")
    return llm


def transcribe(folder: str) -> None:
    """Print what the clip says, and how much faster than speech that was found out."""
    llm = load("Speech to text", folder)
    start = perf_counter()
    text = llm.transcribe(str(CLIP)).text
    seconds = perf_counter() - start
    with wave.open(str(CLIP)) as clip:
        length = clip.getnframes() / clip.getframerate()
    console.print(Text(text.strip(), style="green"))
    console.print(f"[dim]{length:.1f} s of speech in {seconds:.2f} s, {length / seconds:.0f} × real time[/]\n")


def rewrite(task: str, folder: str, sources: Sequence[str], prefix: str = "") -> None:
    """Print each source beside what the model makes of `prefix` + source, all of them in one batch."""
    llm = load(task, folder)
    start = perf_counter()
    outputs = llm.generate([prefix + source for source in sources], SamplingParams(max_tokens=64))
    seconds = perf_counter() - start
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for source, output in zip(sources, outputs, strict=True):
        table.add_row(Text(source), Text(output.outputs[0].text, style="green"))
    console.print(table)
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    console.print(f"[dim]{tokens} tokens in {seconds:.2f} s, {tokens / seconds:.0f} tokens/s[/]\n")


def suggest(*command: str) -> None:
    """Print a command to try next, whole, to be copied."""
    console.print(Text(f"  {shlex.join(command)}"), soft_wrap=True)


def main(whisper: str, bart: str, t5: str) -> None:
    """Run the three, then say what to try next."""
    transcribe(whisper)
    rewrite("Words to phonemes", bart, WORDS)
    rewrite("Steps to titles", t5, STEPS, prefix=TITLE)
    console.rule("[bold]Try next[/]")
    suggest(".venv/bin/transduce", "generate", bart, "hello", "world")
    suggest(".venv/bin/transduce", "transcribe", whisper, str(CLIP.relative_to(ROOT)))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/demo.py WHISPER BART T5, three checkpoint folders; or run scripts/demo")
    main(*sys.argv[1:])
