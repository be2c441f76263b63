"""transduce transcribe: its flags, and what is printed, written and said of recordings.

Which recordings there are is `recordings`' matter, files of results are `results`'.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transduce.cli import answering, options, terminal
from transduce.cli.options import option
from transduce.cli.recordings import Recording, find
from transduce.cli.results import FORMATS, Results, Style
from transduce.core.params import SamplingParams
from transduce.errors import EngineError, RequestError
from transduce.speech.subtitles import Layout

if TYPE_CHECKING:
    from transduce.llm import LLM
    from transduce.speech.fallback import Fallback
    from transduce.speech.transcription import Transcription

Clips = Annotated[
    list[str],
    typer.Argument(
        metavar="CLIP...", help="Audio files in any format FFmpeg reads, or folders of them.", show_default=False
    ),
]
Language = Annotated[str | None, option("The speech's, such as en; detected where it is not given.")]
Task = Annotated[str, option("transcribe, or translate into English.")]
Before = Annotated[str | None, option("What was said before, as context.")]
Timestamps = Annotated[bool, option("Mark segments, as <|1.20|>.", "--timestamps")]
OutputDir = Annotated[Path | None, option("Folder to write results to; a further run goes on where one stopped.")]
Format = Annotated[str | None, option(f"With --output-dir: of {', '.join(FORMATS)}. Left out: all.", "--format")]
LineWidth = Annotated[int | None, option("With --output-dir: characters of a line of subtitles.")]
LineCount = Annotated[int | None, option("With --max-line-width: lines of a subtitle.")]
Words = Annotated[
    bool,
    option("Find out when each word is spoken: listed in json files, and where subtitles break.", "--word-timestamps"),
]
Condition = Annotated[bool, option("Whether a window of long audio is told the text before it.")]
Voice = Annotated[bool, option("Hear only speech, side by side, in windows cut at silences.", "--vad-filter")]
MadeUp = Annotated[
    float | None, option("With --word-timestamps: drop what seems made up beside so many silent seconds.")
]
Temperatures = Annotated[str | None, option("Decode again at the next of these while text is not to be believed.")]
Repetition = Annotated[str | None, option("It is not if it compresses by more than this; none: however much.")]
Likelihood = Annotated[str | None, option("Nor below this mean log-probability; none: whatever it is.")]
Silence = Annotated[str | None, option("But unlikely text is silence if no speech is likelier than this; none: never.")]

LIMITS = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")


def transcribe(
    context: typer.Context,
    model: options.Model,
    clips: Clips,
    language: Language = None,
    task: Task = "transcribe",
    prompt: Before = None,
    timestamps: Timestamps = False,
    as_json: options.Json = False,
    output_dir: OutputDir = None,
    formats: Format = None,
    max_line_width: LineWidth = None,
    max_line_count: LineCount = None,
    word_timestamps: Words = False,
    condition_on_previous_text: Condition = True,
    vad_filter: Voice = False,
    hallucination_silence_threshold: MadeUp = None,
    temperatures: Temperatures = None,
    compression_ratio_threshold: Repetition = None,
    logprob_threshold: Likelihood = None,
    no_speech_threshold: Silence = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    seed: options.Seed = None,
    beam_width: options.BeamWidth = None,
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
    asked: dict[str, Any] = {
        "language": language,
        "task": task,
        "prompt": prompt,
        "timestamps": timestamps,
        "condition_on_previous_text": condition_on_previous_text,
        "vad_filter": vad_filter,
        "word_timestamps": word_timestamps,
        "hallucination_silence_threshold": hallucination_silence_threshold,
        "fallback": _fallback(context),
        "sampling_params": answering.params(context),
    }
    style = _style(context)
    recordings = find(clips)
    if output_dir is None:
        _print(context, recordings, asked)
    else:
        _write(context, recordings, asked, Results(output_dir, style, recordings))


def _fallback(context: typer.Context) -> "Fallback | None":
    """What the flags say of it; None if they say nothing."""
    ladder, limits = context.params["temperatures"], {name: context.params[name] for name in LIMITS}
    values: dict[str, Any] = {name: _limit(name, text) for name, text in limits.items() if text is not None}
    if ladder is not None and context.params["temperature"] is not None:
        raise typer.BadParameter("--temperature is the only one that is tried; give either this or --temperatures")
    if ladder is not None:
        values["temperatures"] = tuple(map(_temperature, ladder.split(",")))
    if not values:
        return None
    with terminal.interruptible():
        from transduce.speech.fallback import Fallback
    return Fallback(**values)


def _limit(name: str, text: str) -> float | None:
    try:
        return None if text == "none" else float(text)
    except ValueError:
        raise typer.BadParameter(f"{name}={text!r}: give a number, or none") from None


def _temperature(text: str) -> float:
    try:
        return SamplingParams(temperature=float(text)).temperature or 0.0
    except ValueError as error:
        raise typer.BadParameter(f"temperatures has {text!r}: give numbers such as 0,0.2,0.4") from error


def _style(context: typer.Context) -> Style:
    """What files of results look like. BadParameter where there are to be none, but the flags say how they look."""
    layout, formats = options.given(context, Layout), context.params["formats"]
    if context.params["output_dir"] is None and (layout or formats):
        raise typer.BadParameter("--format and --max-line-… are for files: give --output-dir too")
    if context.params["output_dir"] is not None and context.params["as_json"]:
        raise typer.BadParameter("--json prints, and --output-dir writes: give --format json instead of --json")
    chosen = FORMATS if formats is None else tuple(dict.fromkeys(each.strip() for each in formats.split(",")))
    if unknown := next((each for each in chosen if each not in FORMATS), None):
        raise typer.BadParameter(f"--format {unknown!r}: give some of {','.join(FORMATS)}")
    with answering.wrong():
        return Style(chosen, Layout(**layout), context.params["task"], context.params["word_timestamps"])


def _print(context: typer.Context, recordings: Sequence[Recording], asked: Mapping[str, Any]) -> None:
    paths, as_json = [recording.path for recording in recordings], context.params["as_json"]
    llm = answering.load(context, "transcribe")
    with answering.refusal([_record(path, "", asked["language"]) for path in paths] if as_json else []):
        said = llm.transcribe(paths, **asked)
    for path, heard in zip(paths, said, strict=True):
        name = f"{path}: " if len(paths) > 1 else ""
        terminal.show(_record(path, heard.text, heard.language, heard.error) if as_json else [name + heard.text])
    answering.finish((path, heard.error) for path, heard in zip(paths, said, strict=True))


def _record(path: str, text: str, language: str | None, error: str | None = None) -> dict[str, Any]:
    return {"audio": path, "text": text, "language": language, "error": error}


def _write(context: typer.Context, recordings: Sequence[Recording], asked: Mapping[str, Any], results: Results) -> None:
    files = {recording.source: recording for recording in recordings}
    todo = [recording for source, recording in files.items() if not results.finished(source)]
    errors = _written(answering.load(context, "transcribe"), todo, asked, results) if todo else {}
    failed = sum(error is not None for error in errors.values())
    before = f", {len(files) - len(todo)} from an earlier run" if len(todo) < len(files) else ""
    terminal.show([f"{context.params['output_dir']}: {len(todo) - failed} transcribed, {failed} failed{before}"])
    answering.finish((recording.path, errors[place]) for place, recording in enumerate(todo))


def _written(
    llm: "LLM", recordings: Sequence[Recording], asked: Mapping[str, Any], results: Results
) -> Mapping[int, str | None]:
    """Write the results of each recording as soon as it has some; by its place, what went wrong."""
    errors: dict[int, str | None] = {}

    def done(place: int, said: "Transcription") -> None:
        errors[place] = said.error
        if said.error is None:
            try:
                results.write(recordings[place].source, said)
            except OSError as error:
                errors[place] = f"cannot write its results: {error.strerror}"

    stamped = llm.frontend.processor.clock.zero < llm.frontend.spec.target_vocab
    try:
        llm.transcribe([recording.path for recording in recordings], **{**asked, "timestamps": stamped}, done=done)
    except (RequestError, EngineError):
        if len(errors) < len(recordings):  # else it is a single one's, which is told like those of several
            raise
    return errors
