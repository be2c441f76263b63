"""What is said in the recordings of a folder, and how much faster than speech that was found out.

Usage: python examples/transcribe.py MODEL FOLDER
"""

import sys
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.text import Text

from transduce import LLM
from transduce.media.audio import decode

RATE = 16_000


def main(model: str, folder: str) -> None:
    """Print the name and the words of every recording, all heard in one batch."""
    console = Console(highlight=False)
    clips = sorted(Path(folder).glob("*.wav"))
    samples = [decode(clip, RATE) for clip in clips]
    llm = LLM(model)
    start = perf_counter()
    said = llm.transcribe([(each, RATE) for each in samples])
    seconds = perf_counter() - start
    for clip, heard in zip(clips, said, strict=True):
        console.print(Text(f"{clip.name}: {heard.error or heard.text}"), soft_wrap=True)
    speech = sum(map(len, samples)) / RATE
    console.print(f"[dim]{speech:.1f} s of speech in {seconds:.2f} s, {speech / seconds:.0f} × real time[/]")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/transcribe.py MODEL FOLDER")
    main(*sys.argv[1:])
