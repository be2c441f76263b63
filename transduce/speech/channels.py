"""The channels of one recording, each heard as a recording of its own, as one transcription.

Owns what becomes of them, and their order. Knows neither how one is heard nor how its text is labelled.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from transduce.errors import RequestError
from transduce.frontend.dialogue import Branches, Dialogue
from transduce.speech.joined import marked, summed
from transduce.speech.subtitles import text
from transduce.speech.transcription import At, Transcription

MOST = 4
"""Channels that are open at once: each holds what it hears."""


def separately(each: Sequence[Callable[[At], Dialogue[Transcription]]], marks: bool, at: At) -> Dialogue[Transcription]:
    """What is said in channels, from the first on, side by side. Raises the RequestError of one that has any.

    marks: whether the text holds the times of segments. Of language and its probability, it has the first channel's in
    which anything is said. at: is told the mean of what has been heard of them.
    """
    heard, errors, reached = dict[int, Transcription](), list[RequestError](), [0.0] * len(each)

    def reach(index: int, seconds: float, duration: float) -> None:
        reached[index] = seconds
        at(sum(reached) / len(reached), duration)

    def hear(index: int, dialogue: Dialogue[Transcription]) -> Dialogue[None]:
        try:
            heard[index] = yield from dialogue
        except RequestError as error:
            errors.append(error)

    yield Branches((hear(index, make(partial(reach, index))) for index, make in enumerate(each)), MOST)
    for error in errors:
        raise error
    return _merged([heard[index] for index in range(len(each))], marks)


def _merged(heard: Sequence[Transcription], marks: bool) -> Transcription:
    """What is heard first comes first; at once, the lower channel."""
    of_all = [replace(segment, channel=number) for number, said in enumerate(heard, 1) for segment in said.segments]
    segments = [replace(segment, id=place) for place, segment in enumerate(sorted(of_all, key=attrgetter("start")))]
    said = text([replace(segment, text=marked(segment)) for segment in segments] if marks else segments)
    told = next((each for each in heard if each.text), heard[0])
    return Transcription(
        said,
        told.language,
        summed([each.output for each in heard], said),
        tuple(segments),
        heard[0].duration,
        told.language_probability,
    )
