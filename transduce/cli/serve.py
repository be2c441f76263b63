"""transduce serve: its flags, which a file and the environment may set as well.

Every flag is a field of EngineConfig or of ServeOptions. What is served, and how it ends, is `transduce.server`'s.
"""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli import options, sources
from transduce.cli.options import option
from transduce.config import EngineConfig, from_options

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A checkpoint's folder, or a hub id.", show_default=False, envvar="TRANSDUCE_SERVE_MODEL"
    ),
]

Host = Annotated[str | None, option("Address to listen on: 127.0.0.1 unless given; 0.0.0.0 is all.")]
Port = Annotated[int | None, option("Port to listen on: 8000 unless given.")]
RootPath = Annotated[str | None, option("Path under which a proxy shows the server.")]
Names = Annotated[list[str] | None, option("Name that requests give; may be repeated.", "--served-model-name")]
Keys = Annotated[list[str] | None, option("Key that requests must carry; may be repeated.", "--api-key")]
KeyFile = Annotated[Path | None, option("File of such keys, one a line.")]
Origins = Annotated[list[str] | None, option("Web page that may call (CORS); may be repeated.", "--allowed-origins")]
MaxWaiting = Annotated[int | None, option("Prompts that may wait; then new requests get a 429.")]
Priority = Annotated[bool, option("Let requests of lower priority pass others.", "--priority")]
RequestTimeout = Annotated[float | None, option("Seconds that a prompt may take.")]
ShutdownTimeout = Annotated[float | None, option("Seconds that running requests get after SIGTERM.")]
MaxBody = Annotated[float | None, option("Largest request body, in MB.")]
MaxFile = Annotated[float | None, option("Largest uploaded file, in MB.")]
MaxAudio = Annotated[float | None, option("Longest audio, in seconds.")]
LogFormat = Annotated[str | None, option("text or json.")]
LogLevel = Annotated[str | None, option("debug, info, warning or error.")]
Traces = Annotated[str | None, option("Where OpenTelemetry traces go, such as http://localhost:4318/v1/traces.")]
MaxBatched = Annotated[int | None, option("Decoder tokens a step.")]
MaxEncode = Annotated[int | None, option("Encoder rows a step.")]
BlockSize = Annotated[int | None, option("Tokens in a page of the KV cache.")]
KVBytes = Annotated[int | None, option("Bytes of the KV cache.")]
KVDType = Annotated[str | None, option("How keys and values are stored: auto or int8, among others.")]
Utilization = Annotated[float | None, option("Without effect on a CPU.")]
Parallel = Annotated[int | None, option("Only 1 so far.")]
Eager = Annotated[bool, option("Without effect on a CPU.", "--enforce-eager")]
Trust = Annotated[bool, option("Run code that comes with a checkpoint.", "--trust-remote-code")]
NoTokenizer = Annotated[bool, option("Token ids in and out, no text.", "--skip-tokenizer-init")]
EngineSeed = Annotated[int | None, option("Starts the seeds of requests without one of their own.")]
MostMedia = Annotated[str | None, option("Most images of a prompt, such as image=4: 16 unless given.")]
Domains = Annotated[
    list[str] | None,
    option("Host to fetch images from, wherever it leads, and no other; may be repeated.", "--allowed-media-domains"),
]
LocalMedia = Annotated[Path | None, option("Folder under which file:// URLs of images are read.")]
MediaTimeout = Annotated[float | None, option("Seconds that fetching an image may take.")]
NoPage = Annotated[bool, option("Serve no page at /.", "--disable-playground")]


Config = Annotated[
    Path | None,
    typer.Option(
        help="YAML file of flags, such as port: 8000.", is_eager=True, callback=sources.read, show_default=False
    ),
]


def serve(
    context: typer.Context,
    model: Model,
    config: Config = None,
    host: Host = None,
    port: Port = None,
    root_path: RootPath = None,
    served_model_name: Names = None,
    api_key: Keys = None,
    api_key_file: KeyFile = None,
    allowed_origins: Origins = None,
    max_waiting: MaxWaiting = None,
    priority: Priority = False,
    request_timeout: RequestTimeout = None,
    shutdown_timeout: ShutdownTimeout = None,
    max_body_mb: MaxBody = None,
    max_file_mb: MaxFile = None,
    max_audio_seconds: MaxAudio = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    otlp_traces_endpoint: Traces = None,
    disable_playground: NoPage = False,
    dtype: options.DType = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_model_len: options.MaxModelLen = None,
    max_num_batched_tokens: MaxBatched = None,
    max_encode_tokens: MaxEncode = None,
    block_size: BlockSize = None,
    kv_cache_bytes: KVBytes = None,
    kv_cache_dtype: KVDType = None,
    gpu_memory_utilization: Utilization = None,
    attention_backend: options.Backend = None,
    speculate: options.Speculate = None,
    quantization: options.Quantization = None,
    quantization_keep: options.Keep = None,
    load_format: options.LoadFormat = None,
    generation_config: options.GenerationConfig = None,
    tokenizer: options.Tokenizer = None,
    skip_tokenizer_init: NoTokenizer = False,
    revision: options.Revision = None,
    tensor_parallel_size: Parallel = None,
    enforce_eager: Eager = False,
    trust_remote_code: Trust = False,
    seed: EngineSeed = None,
    limit_mm_per_prompt: MostMedia = None,
    allowed_media_domains: Domains = None,
    allowed_local_media_path: LocalMedia = None,
    media_timeout: MediaTimeout = None,
) -> None:
    """Serve MODEL over HTTP as OpenAI's API has it, until SIGTERM or Ctrl-C."""
    from transduce.server.options import ServeOptions
    from transduce.server.serve import serve as run

    engine, server = options.given(context, EngineConfig), options.given(context, ServeOptions)
    lists = {name: tuple(value) for name, value in server.items() if isinstance(value, list)}
    raise typer.Exit(run(from_options(engine.pop("model"), engine), ServeOptions(**server | lists)))
