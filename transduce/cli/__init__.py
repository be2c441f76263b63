"""The command line: its commands, of which the larger ones are modules of their own.

Owns flags, what is printed and exit codes: 0; 1 when inputs failed, the others being printed; 2 for a wrong command,
argument or checkpoint; 130 after Ctrl-C. Results go to stdout in the order of the inputs, all else to stderr.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from typer.exceptions import Abort, TyperException

import transduce
from transduce.cli import answering, bench, ocr, options, run_batch, serve, sources, terminal, transcribe
from transduce.config import EngineConfig, from_options
from transduce.errors import EngineError, RequestError, TransduceError
from transduce.frontend.outputs import CompletionOutput

FAILED, WRONG, INTERRUPTED = answering.FAILED, 2, 130

MB = 1_000_000

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "TRANSDUCE"},  # every flag: TRANSDUCE_SERVE_PORT
)
app.command(cls=sources.Command)(serve.serve)
app.command(cls=sources.Command)(transcribe.transcribe)
app.command(cls=sources.Command)(ocr.ocr)
app.command("run-batch", cls=sources.Command)(run_batch.run_batch)
app.add_typer(bench.app, name="bench")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. What is expected to go wrong is one line on stderr.

    It is meant to end a process: after Ctrl-C, further ones are ignored.
    """
    terminal.prepare()
    code = _run(arguments)
    if code == INTERRUPTED:
        terminal.ignore_interrupts()
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(arguments, prog_name="transduce", standalone_mode=False)
    except TyperException as error:
        message = error.format_message()  # none where the help was asked for by giving nothing
        return _complain(message, WRONG) if message else WRONG
    except (RequestError, EngineError) as error:
        return _complain(str(error), FAILED)
    except TransduceError as error:
        return _complain(str(error), WRONG)
    except OSError as error:
        terminal.discard(error)
        return _complain(f"cannot write the answers: {error.strerror}", FAILED)
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code or 0


@app.callback(invoke_without_command=True)
def root(show_version: options.ShowVersion = False) -> None:
    """Run encoder-decoder transformers: text, speech or images in, text out."""
    if show_version:
        typer.echo(transduce.__version__)
        raise typer.Exit


@app.command(cls=sources.Command)
def generate(
    context: typer.Context,
    model: options.Model,
    texts: options.Texts = None,
    file: options.File = None,
    as_json: options.Json = False,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    seed: options.Seed = None,
    beam_width: options.BeamWidth = None,
    n: options.Samples = None,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    logprobs: options.Logprobs = None,
    truncate_prompt_tokens: options.Truncate = None,
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
    """Print what MODEL makes of each TEXT: a summary, a translation, whatever it was trained for."""
    sources = list(_sources(texts or [], file))
    if not sources:
        raise typer.BadParameter("no texts: give a TEXT, --file, or - to read lines from stdin")
    if logprobs is not None and not as_json:
        raise typer.BadParameter("--logprobs goes with --json; add it")
    params = answering.params(context)
    llm = answering.load(context, "generate")
    refused = [CompletionOutput(0, finish_reason="error")]
    with answering.refusal([_answers(source, refused) for source in sources] if as_json else []):
        outputs = llm.generate([*sources], params)
    for source, output in zip(sources, outputs, strict=True):
        terminal.show(
            _answers(source, output.outputs, output.truncated, output.error)
            if as_json
            else [answer.text for answer in output.outputs]
        )
    answering.finish((source, output.error) for source, output in zip(sources, outputs, strict=True))


@app.command(cls=sources.Command)
def quantize(
    context: typer.Context,
    model: options.Model,
    out: options.Out,
    quantization: options.Scheme = "int8",
    quantization_keep: options.Keep = None,
    revision: options.Revision = None,
    verbose: options.Verbose = False,
) -> None:
    """Write MODEL with smaller weights to OUT, a folder that generate and transcribe take as a MODEL."""
    terminal.log(verbose)
    given = options.given(context, EngineConfig)
    with terminal.interruptible():
        from transduce.runtime.quantize import quantize as write

        written = write(from_options(given.pop("model"), given), out, terminal.watched)
    layers = f"{written.quantized} layers in {quantization}, {written.kept} kept"
    terminal.show([f"{out}: {layers}, {written.before / MB:,.1f} MB to {written.after / MB:,.1f} MB"])


def _sources(texts: Sequence[str], file: Path | None) -> Iterator[str]:
    for text in texts:
        yield from terminal.lines(text) if text == "-" else [text]
    if file is not None:
        yield from terminal.lines(str(file))


def _answers(
    source: str, outputs: Sequence[CompletionOutput], truncated: int = 0, error: str | None = None
) -> dict[str, Any]:
    answers = [asdict(answer) for answer in outputs]
    return {"prompt": source, "outputs": answers, "truncated": truncated, "error": error}


def _complain(message: str, code: int) -> int:
    terminal.complain(message)
    return code
