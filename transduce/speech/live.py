"""A turn of live speech, heard again and again while it goes on: what of its hearings is kept, and what is heard next.

Owns agreement (LocalAgreement-2: what two hearings in a row begin with alike is agreed, and never changes) and the
window, which slides on over what is agreed. Knows no engine, no socket and no time of day.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, takewhile

import numpy as np
import numpy.typing as npt

from transduce.media.audio import Samples
from transduce.speech.segments import Segment
from transduce.speech.words import UNSPACED

SAMPLE = np.dtype(np.float32).itemsize

LEAST = 0.1
"""Seconds in which nothing can be said."""
CONTEXT = 40
"""Units of what was said before a window that are told with it."""


@dataclass(frozen=True, slots=True)
class Script:
    """How text falls into units, each agreed upon by itself. space: what joins them; "": they are characters."""

    space: str

    def units(self, text: str) -> list[str]:
        """Those of a text."""
        return text.split() if self.space else [*text.strip()]

    def joined(self, units: Sequence[str]) -> str:
        """The text of units."""
        return self.space.join(units)


def script(language: str | None) -> Script:
    """That of a language: such as have no spaces between words are agreed upon by characters."""
    return Script("" if language in UNSPACED else " ")


def letters(units: Sequence[str]) -> str:
    """What is compared: neither case nor punctuation, which change with what follows."""
    return "".join(character for character in "".join(units).casefold() if character.isalnum())


def shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many units both begin with."""
    alike = (letters([a]) == letters([b]) for a, b in zip(one, other, strict=False))
    return sum(takewhile(bool, alike))


def follows(agreed: Sequence[str], units: Sequence[str]) -> int:
    """How many of the first `units` say what `agreed` says, word by word or as nearly as can be."""
    if shared(agreed, units) == len(agreed):
        return len(agreed)
    wanted = letters(agreed)
    ends = [*accumulate((len(letters([unit])) for unit in units), initial=0)]
    errors = _edits(wanted, letters(units))

    def fit(count: int) -> tuple[int, int, int]:
        return int(errors[ends[count]]), abs(ends[count] - len(wanted)), abs(count - len(agreed))

    return min(range(len(ends)), key=fit)


def _edits(wanted: str, given: str) -> npt.NDArray[np.int64]:
    """How many edits make `wanted` of each beginning of `given` [characters + 1]."""
    codes = np.array([*map(ord, given)], np.int64)
    steps = np.arange(len(given) + 1)
    row = steps
    for done, letter in enumerate(wanted, 1):
        changed = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(letter)))
        row = np.minimum.accumulate(np.concatenate(([done], changed)) - steps) + steps
    return row


class Agreement:
    """What is agreed of the text of one window. open: what the newest hypothesis says beyond."""

    def __init__(self) -> None:
        self.agreed: list[str] = []
        self.open: list[str] = []

    def hear(self, units: Sequence[str], certain: int = 0) -> list[str]:
        """Another hypothesis; what is newly agreed. certain: units at its beginning that need no second hearing.

        Its last unit is not: what follows shows where that ends, and with which punctuation.
        """
        after = follows(self.agreed, units)
        rest = [*units[after:]]
        new = rest[: max(shared(self.open, rest[:-1]), certain - after)]
        self.agreed += new
        self.open = rest[len(new) :]
        return new

    def settle(self) -> list[str]:
        """Nothing follows: what is open is agreed."""
        new, self.open = self.open, []
        self.agreed += new
        return new

    def drop(self, said: Sequence[str]) -> None:
        """The window slides on: what is agreed of the rest is `said`, in the newest hypothesis's words."""
        self.agreed = [*said]


class Turn:
    """What is said from one silence to the next, or until it is ended, in samples [samples] at `rate`.

    start: where it begins, in samples of all audio. window: samples that are heard at once; from half of them on, the
    window slides on to the end of the last segment that is agreed.
    """

    def __init__(self, start: int, rate: int, window: int) -> None:
        self.start = start
        self.samples = 0
        """Samples so far, heard or not."""
        self.ended = self.failed = False
        self.context = ""
        """What was said shortly before the window."""
        self._rate = rate
        self._window = window
        self._audio = bytearray()
        self._tried = self._heard = 0
        self._speech = 0
        self._agreement = Agreement()
        self._said: list[str] = []
        self._script = script(None)

    @property
    def seconds(self) -> float:
        """Its length so far."""
        return self.samples / self._rate

    @property
    def held(self) -> int:
        """Samples that are in memory."""
        return len(self._audio) // SAMPLE

    @property
    def unheard(self) -> int:
        """Samples that no hearing has had."""
        return self.held - self._tried

    @property
    def last(self) -> bool:
        """Whether this window is heard no more: nothing follows, or it is full."""
        return self.ended or self.held >= self._window

    @property
    def done(self) -> bool:
        """Whether all that is spoken has been heard."""
        return self.ended and self._heard + LEAST * self._rate > min(self.held, self._speech)

    @property
    def text(self) -> str:
        """What is agreed so far."""
        return self._script.joined(self._said)

    @property
    def guess(self) -> str:
        """What the newest hearing says beyond; the next one may say something else."""
        return self._script.joined(self._agreement.open)

    def add(self, samples: Samples) -> None:
        """What follows."""
        self.samples += len(samples)
        if not self.failed:
            self._audio += samples.tobytes()

    def end(self, silence: int = 0) -> None:
        """Nothing follows; nobody speaks in so many of the last samples."""
        self.ended = True
        self._speech = self.held - silence

    def fail(self) -> None:
        """It cannot be heard: what comes of it is not kept."""
        self.failed = True
        self._audio.clear()
        self._tried = self._heard = 0

    def audio(self) -> Samples:
        """The window, to be heard."""
        return np.frombuffer(bytes(self._audio[: self._window * SAMPLE]), np.float32)

    def hear(self, segments: Sequence[Segment], samples: int, language: str | None) -> str:
        """A hearing of the first `samples` of the window; what is newly agreed. Segments' times are the window's."""
        self._script = script(language)
        parts = [self._script.units(segment.text) for segment in segments]
        units, ends = [*chain(*parts)], [*accumulate(map(len, parts), initial=0)]
        certain = self._certain(segments) if samples >= self._window else 0
        delta = self._say(self._agreement.hear(units, ends[certain]))
        self._tried = self._heard = samples
        agreed = len(units) - len(self._agreement.open)
        if certain == len(segments) and samples >= self._window:
            self._slide(samples, [])
        elif passed := certain or self._passed(samples, ends, agreed):
            self._slide(min(samples, self._at(segments[passed - 1])), units[ends[passed] : agreed])
        return delta

    def skip(self, samples: int) -> None:
        """A hearing of the first `samples` of the window was not to be believed."""
        self._tried = samples

    def settle(self) -> str:
        """It is done: what is open is agreed; returns that."""
        return self._say(self._agreement.settle())

    def _certain(self, segments: Sequence[Segment]) -> int:
        """How many segments of a full window are heard no more: but for the last one, or all, where that is little."""
        whole = len(segments) < 2 or self._at(segments[-2]) < self._window // 8
        return len(segments) if whole else len(segments) - 1

    def _passed(self, samples: int, ends: Sequence[int], agreed: int) -> int:
        """How many segments, but for the last one, are agreed and shall be heard no more. ends: of their units."""
        if samples < self._window // 2:
            return 0
        return max((count for count, end in enumerate(ends[:-1]) if end <= agreed), default=0)

    def _at(self, segment: Segment) -> int:
        return round(segment.end * self._rate)

    def _say(self, new: Sequence[str]) -> str:
        text = self._script.joined(new)
        delta = self._script.space + text if new and self._said else text
        self._said += new
        return delta

    def _slide(self, samples: int, said: Sequence[str]) -> None:
        """The window begins so many samples later. said: what is agreed of the rest."""
        before = self._said[: len(self._said) - len(said)]
        self.context = self._script.joined(before[-CONTEXT:])
        self._agreement.drop(said)
        del self._audio[: samples * SAMPLE]
        self._tried -= samples
        self._heard -= samples
        self._speech -= samples
