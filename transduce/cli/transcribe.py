"""transduce transcribe: what is printed, written and said of recordings.

How they are heard is `speech`'s matter, which there are `inputs`', files of results are `results`'.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transduce.cli import answering, options, results, speech, terminal
from transduce.cli.inputs import AUDIO, Input, find
from transduce.cli.options import option
from transduce.cli.results import Results
from transduce.errors import EngineError, RequestError
from transduce.speech import subtitles
from transduce.speech.subtitles import Layout

if TYPE_CHECKING:
    from transduce.speech.transcription import Transcription

FORMATS = ("txt", "srt", "vtt", "tsv", "json")

Clips = Annotated[
    list[str],
    typer.Argument(
        metavar="CLIP...", help="Audio files in any format FFmpeg reads, or folders of them.", show_default=False
    ),
]
Format = Annotated[str | None, option(f"With --output-dir: of {', '.join(FORMATS)}. Left out: all.", "--format")]
LineWidth = Annotated[int | None, option("With --output-dir: characters of a line of subtitles.")]
LineCount = Annotated[int | None, option("With --max-line-width: lines of a subtitle.")]


def transcribe(
    context: typer.Context,
    model: options.Model,
    clips: Clips,
    language: speech.Language = None,
    task: speech.Task = "transcribe",
    prompt: speech.Before = None,
    timestamps: speech.Timestamps = False,
    as_json: options.Json = False,
    output_dir: results.OutputDir = None,
    formats: Format = None,
    max_line_width: LineWidth = None,
    max_line_count: LineCount = None,
    word_timestamps: speech.Words = False,
    channels: speech.Channels = "mix",
    clip_timestamps: speech.Parts = None,
    condition_on_previous_text: speech.Condition = True,
    prefix: speech.Prefix = None,
    hotwords: speech.Hotwords = None,
    suppress_tokens: speech.Suppressed = None,
    vad_filter: speech.Voice = False,
    vad_threshold: speech.VadThreshold = None,
    vad_neg_threshold: speech.VadNegThreshold = None,
    vad_min_speech: speech.VadMinSpeech = None,
    vad_min_silence: speech.VadMinSilence = None,
    vad_speech_pad: speech.VadSpeechPad = None,
    vad_max_speech: speech.VadMaxSpeech = None,
    hallucination_silence_threshold: speech.MadeUp = None,
    temperatures: speech.Temperatures = None,
    compression_ratio_threshold: speech.Repetition = None,
    logprob_threshold: speech.Likelihood = None,
    no_speech_threshold: speech.Silence = None,
    beam_size: speech.BeamSize = None,
    beam_width: speech.BeamWidth = None,
    best_of: speech.BestOf = None,
    patience: speech.Patience = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    seed: options.Seed = None,
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
    """Print what is said in each CLIP, an audio file of any length or a folder of them, or write it to files."""
    asked = speech.asked(context)
    chosen, rendered = results.formats(context, FORMATS), _rendering(context)
    recordings = find(clips, AUDIO)
    if output_dir is None:
        _print(context, recordings, asked)
    else:
        files = Results(output_dir, chosen, rendered, recordings)
        files.fill("transcribed", partial(_written, context, asked, files))


def _rendering(context: typer.Context) -> "Callable[[Transcription, str], str]":
    """What files of results look like. BadParameter where there are to be none, but the flags say how they look."""
    layout = options.given(context, Layout)
    if context.params["output_dir"] is None and layout:
        raise typer.BadParameter("--max-line-… are for files: give --output-dir too")
    with answering.wrong():
        shown = Layout(**layout)
    return partial(_rendered, shown, context.params["task"], context.params["word_timestamps"])


def _rendered(layout: Layout, task: str, words: bool, said: "Transcription", form: str) -> str:
    """A transcription in one of FORMATS. task: as the JSON names it. words: whether it lists them too."""
    match form:
        case "txt":
            return subtitles.txt(said.segments)
        case "srt":
            return subtitles.srt(said.segments, layout)
        case "vtt":
            return subtitles.vtt(said.segments, layout)
        case "tsv":
            return subtitles.tsv(said.segments)
        case _:
            return _json(said, task, ("segment", "word") if words else ("segment",))


def _json(said: "Transcription", task: str, listed: Sequence[str]) -> str:
    answer = subtitles.verbose_json(
        said.segments, task=task, language=said.language or "", duration=said.duration, granularities=listed
    )
    return f"{answer}\n"


def _print(context: typer.Context, recordings: Sequence[Input], asked: Mapping[str, Any]) -> None:
    paths, as_json = [recording.path for recording in recordings], context.params["as_json"]
    llm = answering.load(context, "transcribe")
    with answering.refusal([_record(path, "", context.params["language"]) for path in paths] if as_json else []):
        said = llm.transcribe(paths, **asked)
    for path, heard in zip(paths, said, strict=True):
        name = f"{path}: " if len(paths) > 1 else ""
        lines = [name + line for line in heard.text.split("\n")]
        terminal.show(_record(path, heard.text, heard.language, heard.error) if as_json else lines)
    answering.finish((path, heard.error) for path, heard in zip(paths, said, strict=True))


def _record(path: str, text: str, language: str | None, error: str | None = None) -> dict[str, Any]:
    return {"audio": path, "text": text, "language": language, "error": error}


def _written(
    context: typer.Context,
    asked: Mapping[str, Any],
    files: "Results[Transcription]",
    recordings: Sequence[Input],
) -> Mapping[int, Sequence[str]]:
    """Write the results of each recording as soon as it has some; by its place, what went wrong."""
    errors: dict[int, Sequence[str]] = {}

    def done(place: int, said: "Transcription") -> None:
        errors[place] = files.write(recordings[place].source, said) if said.error is None else [said.error]

    llm = answering.load(context, "transcribe")
    stamped = llm.frontend.processor.clock.zero < llm.frontend.spec.target_vocab
    try:
        llm.transcribe([recording.path for recording in recordings], **{**asked, "timestamps": stamped}, done=done)
    except (RequestError, EngineError):
        if len(errors) < len(recordings):  # else it is a single one's, which is told like those of several
            raise
    return errors
