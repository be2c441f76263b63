"""The commands transduce bench serve, latency and throughput: their flags, named as `vllm bench` names them.

What they do is in `measuring`, which is imported when one of them runs.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options, sources
from transduce.cli.options import option

app = typer.Typer(no_args_is_help=True)

flag = partial(typer.Option, show_envvar=False)  # their names would be most of the page

BaseUrl = Annotated[str, flag(help="The server's address.")]
ServedModel = Annotated[str | None, option("The model's name there. Left out: the first that the server lists.")]
Endpoint = Annotated[str | None, option("Path to post to. Left out: completions, or transcriptions for audio.")]
ApiKey = Annotated[str | None, typer.Option(help="Sent as a bearer token.", envvar="OPENAI_API_KEY", show_envvar=True)]
Dataset = Annotated[str, flag("--dataset-name", help="random, jsonl or audio.")]
DatasetPath = Annotated[Path | None, option("The JSONL file, or the folder of audio files.")]
Prompts = Annotated[int | None, option("Requests at each level. Left out: 100, or what the data set has.")]
InputLen = Annotated[str, flag(help="random: source tokens, or lognormal:MEDIAN:SIGMA[:LOWEST:HIGHEST].")]
OutputLen = Annotated[str, flag(help="random: tokens of an answer, in the same forms.")]
VocabSize = Annotated[int, flag(help="random: token ids are below this.")]
Noise = Annotated[float, flag(min=0, help="audio: noise that makes clips differ; 0 sends files as they are.")]
Seed = Annotated[
    int | None, flag(min=0, help="Of inputs and arrivals. Left out: another every time.", show_default=False)
]
Rates = Annotated[str, flag(help="Poisson arrivals per second; a list, 1,2,4, sweeps. inf: all at once.")]
Concurrency = Annotated[
    str | None,
    option("Requests in flight at most, as by so many clients; a list sweeps.", "--concurrency", "--max-concurrency"),
]
Stream = Annotated[bool, flag("--stream/--no-stream", help="Whether answers are streamed.")]
ExtraBody = Annotated[str | None, option("JSON object of further fields for every request.")]
Warmups = Annotated[int, flag(min=0, help="Requests sent before, one by one, that do not count.")]
Goodput = Annotated[list[str] | None, option("ttft, tpot or e2e and its most ms, as ttft:500; may be repeated.")]
Timeout = Annotated[float, flag(min=0.001, help="Seconds that the server may be silent.")]
JsonFile = Annotated[Path | None, option("Write everything measured to this file.", "--json")]
Plot = Annotated[Path | None, option("Draw throughput against latency to this PNG file.")]
BatchSize = Annotated[int, flag(min=1, help="Requests in the batch.")]
Iterations = Annotated[int, flag("--num-iters", min=1, help="Runs that count.")]
IterationsBefore = Annotated[int, flag("--num-iters-warmup", min=0, help="Runs before, that do not.")]
NoTokenizer = Annotated[bool, option("Make no text of tokens; prompts are token ids.", "--skip-tokenizer-init")]


@app.callback()
def root() -> None:
    """Measure a running server, or the offline API in this process."""


@app.command(cls=sources.Command)
def serve(
    context: typer.Context,
    base_url: BaseUrl = "http://127.0.0.1:8000",
    model: ServedModel = None,
    endpoint: Endpoint = None,
    api_key: ApiKey = None,
    dataset_name: Dataset = "random",
    dataset_path: DatasetPath = None,
    num_prompts: Prompts = None,
    input_len: InputLen = "128",
    output_len: OutputLen = "64",
    vocab_size: VocabSize = 1000,
    noise: Noise = 0.001,
    seed: Seed = None,
    request_rate: Rates = "inf",
    concurrency: Concurrency = None,
    stream: Stream = True,
    extra_body: ExtraBody = None,
    num_warmups: Warmups = 1,
    goodput: Goodput = None,
    timeout: Timeout = 600.0,
    json_file: JsonFile = None,
    plot: Plot = None,
) -> None:
    """Send requests to a running server, and print throughput, latencies and goodput."""
    from transduce.cli import measuring

    measuring.serve(context)


@app.command(cls=sources.Command)
def latency(
    context: typer.Context,
    model: options.Model,
    dataset_name: Dataset = "random",
    dataset_path: DatasetPath = None,
    input_len: InputLen = "128",
    output_len: OutputLen = "64",
    noise: Noise = 0.001,
    batch_size: BatchSize = 8,
    num_iters_warmup: IterationsBefore = 2,
    num_iters: Iterations = 10,
    seed: Seed = None,
    json_file: JsonFile = None,
    dtype: options.DType = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_model_len: options.MaxModelLen = None,
    attention_backend: options.Backend = None,
    speculate: options.Speculate = None,
    quantization: options.Quantization = None,
    quantization_keep: options.Keep = None,
    load_format: options.LoadFormat = None,
    tokenizer: options.Tokenizer = None,
    skip_tokenizer_init: NoTokenizer = False,
    revision: options.Revision = None,
    verbose: options.Verbose = False,
) -> None:
    """Time one batch of MODEL in this process, again and again, of new random tokens or new noise each time."""
    from transduce.cli import measuring

    measuring.latency(context)


@app.command(cls=sources.Command)
def throughput(
    context: typer.Context,
    model: options.Model,
    dataset_name: Dataset = "random",
    dataset_path: DatasetPath = None,
    num_prompts: Prompts = None,
    input_len: InputLen = "128",
    output_len: OutputLen = "64",
    noise: Noise = 0.001,
    seed: Seed = None,
    json_file: JsonFile = None,
    dtype: options.DType = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_model_len: options.MaxModelLen = None,
    attention_backend: options.Backend = None,
    speculate: options.Speculate = None,
    quantization: options.Quantization = None,
    quantization_keep: options.Keep = None,
    load_format: options.LoadFormat = None,
    tokenizer: options.Tokenizer = None,
    skip_tokenizer_init: NoTokenizer = False,
    revision: options.Revision = None,
    verbose: options.Verbose = False,
) -> None:
    """Give MODEL many prompts at once in this process, and print requests and tokens per second."""
    from transduce.cli import measuring

    measuring.throughput(context)
