"""What a recording says, or why nothing is known of that.

Owns the record. Knows no engine, and not how it came about.
"""

from collections.abc import Callable
from dataclasses import dataclass

from transduce.errors import RequestError
from transduce.frontend.collector import refused
from transduce.frontend.outputs import RequestOutput
from transduce.speech.segments import Segment

At = Callable[[float, float], None]
"""at(seconds, duration): so many seconds of a recording have been heard by now."""

Tell = Callable[["Transcription"], None]
"""Is told what has been heard so far, time and again: its output is not `finished`, its text begins the whole one."""


@dataclass(frozen=True, slots=True)
class Transcription:
    """What a recording says. language: as given, detected, or the model's only one.

    output: what became of it; of long audio, the tokens of all its windows in one answer. segments: in their order.
    duration: in seconds. language_probability: of a detected one, among those that the model knows.
    """

    text: str
    language: str | None
    output: RequestOutput
    segments: tuple[Segment, ...] = ()
    duration: float = 0.0
    language_probability: float | None = None

    @property
    def error(self) -> str | None:
        """Why there is no transcription; of long audio, why it ends early."""
        return self.output.error


def failed(request_id: str, error: RequestError, language: str | None) -> Transcription:
    """That of a recording that could not be read."""
    return Transcription("", language, refused(request_id, error))
