"""The arguments and flags that commands share, and their help.

Knows no command. What a flag means is what the engine argument or parameter of its name means.
"""

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer


def option(text: str, *names: str) -> Any:
    """A flag and its help; no names: the argument's own."""
    return typer.Option(*names, help=text, show_default=False, show_envvar=False)


def given(context: typer.Context, record: type, but: Collection[str] = (), prefix: str = "") -> dict[str, Any]:
    """Those of the command's arguments that the dataclass `record` has, unless left out; some but not others.

    prefix: what the arguments' names have in front.
    """
    names = [field.name for field in fields(record) if field.name not in but]
    values = {name: context.params.get(f"{prefix}{name}") for name in names}
    return {name: value for name, value in values.items() if value is not None and value != ()}


ShowVersion = Annotated[bool, option("Print the version.", "--version")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A checkpoint's folder, or a hub id.", show_default=False)]
Json = Annotated[bool, option("Print one JSON object a line.", "--json")]
Verbose = Annotated[bool, option("Say on stderr what the engine chose, such as dtype and memory.", "--verbose")]

DType = Annotated[str | None, option("auto, float32 or bfloat16.")]
MaxNumSeqs = Annotated[int | None, option("Answers in the making side by side.")]
MaxModelLen = Annotated[int | None, option("Longest source and longest answer, in tokens.")]
Backend = Annotated[str | None, option("Attention backend.")]
Speculate = Annotated[
    bool | None, option("Draft from the source what may follow. Left out: where that changes nothing but speed.")
]
Quantization = Annotated[str | None, option("How weights are stored: int8, bitsandbytes. Left out: as MODEL has them.")]
Keep = Annotated[list[str] | None, option("A layer, or a pattern, to leave unquantized; may be repeated.", "--keep")]
LoadFormat = Annotated[str | None, option("auto, safetensors, pt, bitsandbytes, or dummy for random weights.")]
GenerationConfig = Annotated[str | None, option("auto, or none to leave out MODEL's own sampling and length defaults.")]
Tokenizer = Annotated[str | None, option("Folder or hub id of another tokenizer.")]
Revision = Annotated[str | None, option("Branch, tag or commit on the hub.")]

Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT...", help="What MODEL is given; - reads lines from stdin.", show_default=False),
]
File = Annotated[Path | None, option("A file with one text a line; - reads stdin, also as TEXT.")]
IgnoreEos = Annotated[bool, option("Go on to --max-tokens.", "--ignore-eos")]
Logprobs = Annotated[int | None, option("With --json: log-probabilities, and of so many likeliest tokens.")]
Truncate = Annotated[int | None, option("Keep so many tokens of each TEXT.")]

Out = Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.", show_default=False)]
Scheme = Annotated[str, typer.Option("--scheme", help="How weights are stored.")]

MaxTokens = Annotated[int | None, option("New tokens at most.")]
Temperature = Annotated[float | None, option("0 is greedy, above it samples.")]
TopP = Annotated[float | None, option("Sample from the likeliest tokens that make up this probability.")]
TopK = Annotated[int | None, option("Sample from this many tokens.")]
Seed = Annotated[int | None, option("Makes sampling repeatable.")]
BeamWidth = Annotated[int | None, option("Beams to search with, whatever the checkpoint asks for; 1 is greedy.")]
Samples = Annotated[int | None, option("Answers to each text: samples or, with --beam-width, the best beams.", "--n")]
Stop = Annotated[list[str] | None, option("End the answer before this text; may be repeated.")]
