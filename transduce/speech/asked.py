"""How recordings are to be transcribed: one record of everything that is asked but the parameters of a window.

Owns the options' names, what goes together and what their values may be. Knows no model: what one cannot do, a
Transcriber says.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Literal, TypedDict, TypeVar, cast

from transduce.core.checks import NO_TOKEN, Range, integer, listed, number, require, shown
from transduce.errors import RequestError
from transduce.speech.activity import VadOptions
from transduce.speech.fallback import Fallback
from transduce.speech.search import Search

T = TypeVar("T")

Part = tuple[float, float | None]
"""What is heard of a recording, in seconds; None: to its end."""

MOST_TIMES = 1000
"""Of clip_timestamps: each part costs at least one window."""

CHANNELS = ("mix", "separate")

_UNHEARD = "with vad_filter only speech is heard, wherever it is; leave one of them out"
_SIDE_BY_SIDE = "with vad_filter windows are heard side by side, and begin with nothing; leave one of them out"


class Options(TypedDict, total=False):
    """The options of `transcribe`, as Speech has them."""

    timestamps: bool
    condition_on_previous_text: bool
    fallback: Fallback | None
    vad_filter: bool | VadOptions
    word_timestamps: bool
    hallucination_silence_threshold: float | None
    prefix: str | None
    hotwords: str | None
    clip_timestamps: str | Sequence[float] | None
    suppress_tokens: str | Sequence[int] | None
    beam_size: int | None
    best_of: int | None
    patience: float | None
    channels: Literal["mix", "separate"]


def known(options: Options) -> Options:
    """`options`, as they are. Raises TypeError, as a call does, for a name that is none."""
    for name in options.keys() - Options.__annotations__.keys():
        raise TypeError(f"transcribe() got an unexpected keyword argument {name!r}; see transduce.speech.asked.Options")
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """How recordings are to be transcribed. language: such as "en"; None: the checkpoint's own, or the one detected.

    task: "translate" is into English. prompt: what was said before. timestamps: mark segments in the text.
    condition_on_previous_text: whether a window of long audio is told the text before it. fallback: None is Fallback(),
    but for a clip whose text is told while it is written: that has one attempt. vad_filter: whether only speech is
    heard, in windows that are cut at silences and told nothing of each other. word_timestamps: whether segments have
    words, and windows of long audio begin after these. hallucination_silence_threshold: seconds of silence beside which
    what seems made up is dropped, of clips too, which are heard as long audio then.

    prefix: what the first window's text begins with. hotwords: words that may be spoken, told to each window without a
    prefix. clip_timestamps: seconds [start, end, start, end, …], or text with commas: only these parts are heard; the
    last end may be left out. suppress_tokens: ids that are never generated, or text with commas; -1 stands for the
    checkpoint's own, of which special tokens are suppressed anyway. beam_size, best_of, patience: see Search. channels:
    "separate" hears each channel by itself, and its segments say which.

    max_seconds: of audio; None: any. salt: see `prompts.Parts`. Raises RequestError.
    """

    language: str | None = None
    task: str = "transcribe"
    prompt: str | None = None
    timestamps: bool = False
    condition_on_previous_text: bool = True
    fallback: Fallback | None = None
    vad_filter: bool | VadOptions = False
    word_timestamps: bool = False
    hallucination_silence_threshold: float | None = None
    prefix: str | None = None
    hotwords: str | None = None
    clip_timestamps: str | Sequence[float] | None = None
    suppress_tokens: str | Sequence[int] | None = None
    beam_size: int | None = None
    best_of: int | None = None
    patience: float | None = None
    channels: str = "mix"
    max_seconds: float | None = None
    salt: str | None = None
    search: Search = field(init=False)
    parts: tuple[Part, ...] = field(init=False)
    suppressed: tuple[int, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        self._check_texts()
        vad = self.vad_filter
        if not isinstance(vad, bool | VadOptions):
            raise RequestError(f"vad_filter of type {type(vad).__name__}: give True, False or VadOptions")
        require(self.channels in CHANNELS, "channels", self.channels, f"give {' or '.join(CHANNELS)}")
        made = {
            "search": Search(beam_size=self.beam_size, best_of=self.best_of, patience=self.patience),
            "parts": tuple(_parts(_each("clip_timestamps", self.clip_timestamps or (), _seconds))),
            "suppressed": self.suppress_tokens
            if self.suppress_tokens is None
            else _each("suppress_tokens", self.suppress_tokens, _token),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)
        if self.hallucination_silence_threshold is not None:
            self._check(self.hallucination_silence_threshold)
        require(self.voice is None or not self.parts, "clip_timestamps", self.clip_timestamps, _UNHEARD)
        require(self.voice is None or not self.prefix, "prefix", self.prefix, _SIDE_BY_SIDE)

    @property
    def voice(self) -> VadOptions | None:
        """How speech is told from silence; None where all is heard."""
        if isinstance(self.vad_filter, VadOptions):
            return self.vad_filter
        return VadOptions() if self.vad_filter else None

    @property
    def as_long(self) -> bool:
        """Whether a clip is heard as long audio is: by its timestamps."""
        return self.hallucination_silence_threshold is not None or bool(self.parts) or self.separate

    @property
    def separate(self) -> bool:
        """Whether each channel is heard by itself."""
        return self.channels == "separate"

    def _check_texts(self) -> None:
        for name in ("language", "prompt", "prefix", "hotwords"):
            text = getattr(self, name)
            require(text is None or isinstance(text, str), name, text, "give a text")

    def _check(self, silence: float) -> None:
        number("hallucination_silence_threshold", silence, Range(0, math.inf))
        name = f"hallucination_silence_threshold={silence}"
        if not self.word_timestamps:
            raise RequestError(f"{name}: silence is what is between words; give word_timestamps=True too")
        if self.voice is not None:
            raise RequestError(f"{name}: with vad_filter silence is not heard at all; leave one of them out")


def _each(name: str, given: object, read: Callable[[object], T]) -> tuple[T, ...]:
    """The values of a list, or of a text with commas, be it in brackets."""
    values = given
    if isinstance(given, str):
        values = [each for each in given.strip().removeprefix("[").removesuffix("]").split(",") if each.strip()]
    listed(name, values, "numbers")
    found = []
    for value in cast(Collection[object], values):
        try:
            found.append(read(value))
        except RequestError:
            raise
        except (TypeError, ValueError):
            raise RequestError(f"{name}={shown(given)}: {shown(value)} is none; give numbers with commas") from None
    return tuple(found)


def _token(value: object) -> int:
    return integer("suppress_tokens", int(value) if isinstance(value, str) else value, NO_TOKEN)


def _seconds(value: object) -> float:
    return number("clip_timestamps", float(value) if isinstance(value, str) else value, Range(0, math.inf))


def _parts(times: tuple[float, ...]) -> Iterator[Part]:
    """Pairs of times, the last of which may be half of one. All of a recording is none."""
    if times == (0.0,):
        return
    require(len(times) <= MOST_TIMES, "clip_timestamps", f"{len(times)} numbers", f"give at most {MOST_TIMES}")
    for at, (before, after) in enumerate(pairwise(times)):
        later = before < after or (before == after and at % 2 == 1)
        require(later, "clip_timestamps", list(times), f"{after:g} is not after {before:g}")
    yield from zip_longest(times[::2], times[1::2])
