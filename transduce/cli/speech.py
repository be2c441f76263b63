"""What the flags of transduce transcribe say of how recordings are heard.

Knows neither which recordings there are nor what becomes of their text.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from transduce.cli import answering, options, terminal
from transduce.cli.options import option
from transduce.core.params import SamplingParams

if TYPE_CHECKING:
    from transduce.speech.activity import VadOptions
    from transduce.speech.fallback import Fallback

Language = Annotated[str | None, option("The speech's, such as en; detected where it is not given.")]
Task = Annotated[str, option("transcribe, or translate into English.")]
Before = Annotated[str | None, option("What was said before, as context.")]
Timestamps = Annotated[bool, option("Mark segments, as <|1.20|>.", "--timestamps")]
Words = Annotated[
    bool,
    option("Find out when each word is spoken: listed in json files, and where subtitles break.", "--word-timestamps"),
]
Condition = Annotated[bool, option("Whether a window of long audio is told the text before it.")]
Prefix = Annotated[str | None, option("What the text begins with.")]
Hotwords = Annotated[str | None, option("Words that may be spoken, told to each window without a prefix.")]
Parts = Annotated[str | None, option("Seconds start,end,start,end…: hear only these parts.")]
Suppressed = Annotated[str | None, option("Token ids, with commas, never to generate; -1: the checkpoint's.")]
BeamSize = Annotated[int | None, option("Beams at temperature 0, whatever MODEL asks for; 1 is greedy.")]
BeamWidth = Annotated[int | None, option("As --beam-size.")]
BestOf = Annotated[int | None, option("Samples at other temperatures, of which the likeliest counts.")]
Patience = Annotated[float | None, option("With --beam-size: search until so many times the beams have ended.")]
Channels = Annotated[str, option("mix them, or hear each by itself: separate. Text says which.")]
Voice = Annotated[bool, option("Hear only speech, side by side, in windows cut at silences.", "--vad-filter")]
VadThreshold = Annotated[float | None, option("Probability from which speech begins. As all --vad-…: a --vad-filter.")]
VadNegThreshold = Annotated[float | None, option("Probability below which it ends.")]
VadMinSpeech = Annotated[float | None, option("Shorter sounds are noise; seconds, as are all below.")]
VadMinSilence = Annotated[float | None, option("Shorter silences part nothing.")]
VadSpeechPad = Annotated[float | None, option("What is added to speech at either side.")]
VadMaxSpeech = Annotated[float | None, option("The longest window.")]
MadeUp = Annotated[
    float | None, option("With --word-timestamps: drop what seems made up beside so many silent seconds.")
]
Temperatures = Annotated[str | None, option("Decode again at the next of these while text is not to be believed.")]
Repetition = Annotated[str | None, option("It is not if it compresses by more than this; none: however much.")]
Likelihood = Annotated[str | None, option("Nor below this mean log-probability; none: whatever it is.")]
Silence = Annotated[str | None, option("But unlikely text is silence if no speech is likelier than this; none: never.")]

LIMITS = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
VAD = "vad_"


def asked(context: typer.Context) -> dict[str, Any]:
    """The flags as options of LLM.transcribe. Raises BadParameter for what no model could do."""
    with terminal.interruptible():
        from transduce.speech.asked import Speech
    said = options.given(context, Speech) | {"fallback": _fallback(context), "vad_filter": _voice(context)}
    if (width := context.params["beam_width"]) is not None:
        if "beam_size" in said:
            raise typer.BadParameter("--beam-width is the same as --beam-size; give one of them")
        said["beam_size"] = width
    with answering.wrong():
        Speech(**said)
    return {**said, "sampling_params": answering.params(context, but={*said, "beam_width"})}


def _voice(context: typer.Context) -> "VadOptions | bool":
    """How speech is told from silence; False where all is heard."""
    from transduce.speech.activity import VadOptions

    with answering.wrong():
        given = options.given(context, VadOptions, prefix=VAD)
        return VadOptions(**given) if given else bool(context.params["vad_filter"])


def _fallback(context: typer.Context) -> "Fallback | None":
    """What the flags say of it; None if they say nothing."""
    from transduce.speech.fallback import Fallback

    ladder, limits = context.params["temperatures"], {name: context.params[name] for name in LIMITS}
    values: dict[str, Any] = {name: _limit(name, text) for name, text in limits.items() if text is not None}
    if ladder is not None and context.params["temperature"] is not None:
        raise typer.BadParameter("--temperature is the only one that is tried; give either this or --temperatures")
    if ladder is not None:
        values["temperatures"] = tuple(map(_temperature, ladder.split(",")))
    with answering.wrong():
        return Fallback(**values) if values else None


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
