"""transduce run-batch: its flags, the progress bar and what is said at the end.

What a batch is, and how it is answered, is `transduce.server.batch`'s.
"""

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options, terminal
from transduce.cli.options import option
from transduce.config import EngineConfig, from_options

Input = Annotated[Path, typer.Option("--input-file", "-i", help="Batch file: a request a line.", show_default=False)]
Output = Annotated[
    Path,
    typer.Option("--output-file", "-o", help="File of results; those in it are not made again.", show_default=False),
]
Names = Annotated[list[str] | None, option("Name that requests give; may be repeated.", "--served-model-name")]


def run_batch(
    context: typer.Context,
    model: options.Model,
    input_file: Input,
    output_file: Output,
    served_model_name: Names = None,
    dtype: options.DType = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_model_len: options.MaxModelLen = None,
    attention_backend: options.Backend = None,
    speculate: options.Speculate = None,
    quantization: options.Quantization = None,
    quantization_keep: options.Keep = None,
    load_format: options.LoadFormat = None,
    generation_config: options.GenerationConfig = None,
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    verbose: options.Verbose = False,
) -> None:
    """Answer the requests of a file in OpenAI's batch format; given again, go on where it stopped.

    Requests that fail do so in the file of results, and the exit code is 0.
    """
    terminal.log(verbose)
    if verbose:
        logging.getLogger("transduce.access").setLevel(logging.WARNING)  # the file of results says as much
    with terminal.interruptible():
        from transduce.frontend.progress import Bar
        from transduce.server import batch

    lines = batch.read(input_file)
    engine = options.given(context, EngineConfig)
    config = from_options(engine.pop("model"), engine)
    with batch.Results(output_file) as results:
        todo = [line for line in lines if line.custom_id not in results.done]
        with Bar(len(todo), shown=True) as bar:
            names = served_model_name or ()
            succeeded = asyncio.run(batch.answer(config, names, todo, results, bar.update)) if todo else 0
    terminal.show([f"{output_file}: {_counts(len(lines), len(todo), succeeded)}"])


def _counts(total: int, todo: int, succeeded: int) -> str:
    before = f", {total - todo} from an earlier run" if todo < total else ""
    return f"{succeeded} succeeded, {todo - succeeded} failed{before}"
