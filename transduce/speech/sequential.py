"""Long audio window by window, each beginning where the last timestamp of the one before it says that speech ended.

Owns how tokens are cut at timestamps, where the next window begins, and what is told of the text before it. Times are
counted in samples. As openai/whisper does it, but that no segment ends after the audio.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from transduce.frontend.dialogue import Dialogue
from transduce.models.base import Clock
from transduce.speech.fallback import Attempt, Fallback
from transduce.speech.segments import Segment

WARM = 0.5
"""Above this temperature a window's text is no context for the next one."""


TOLD = 1000
"""Tokens of the text before that are remembered: more than any decoder is told."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens of a window between two timestamps, in samples from its start. stop: None where none closes it."""

    start: int
    stop: int | None
    tokens: tuple[int, ...]


def cut(tokens: tuple[int, ...], clock: Clock) -> list[Piece]:
    """A window's tokens, cut where one timestamp follows another; all of them, so the last piece may be open.

    Without such a pair they are one piece, which begins with the window and ends at the last timestamp, unless that is
    the window's start.
    """
    stamps = [token >= clock.zero for token in tokens]
    cuts = [at for at in range(1, len(tokens)) if stamps[at - 1] and stamps[at]]
    if not cuts:
        last = next((token for token in reversed(tokens) if token >= clock.zero), clock.zero)
        return [Piece(0, (last - clock.zero) * clock.step or None, tokens)]
    closed = stamps[-1] and not stamps[-2]
    bounds = [0, *cuts, len(tokens)]
    pieces = [_piece(tokens[start:stop], clock) for start, stop in pairwise(bounds)]
    return pieces if closed else [*pieces[:-1], Piece(pieces[-1].start, None, pieces[-1].tokens)]


def _piece(tokens: tuple[int, ...], clock: Clock) -> Piece:
    return Piece((tokens[0] - clock.zero) * clock.step, (tokens[-1] - clock.zero) * clock.step, tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """samples: its length. text: of token ids, without timestamps."""

    samples: int
    clock: Clock
    text: Callable[[Sequence[int]], str]

    @property
    def seconds(self) -> float:
        return self.samples / self.clock.rate

    def segments(self, pieces: Iterable[Piece], attempt: Attempt, seek: int, length: int) -> Iterator[Segment]:
        """The pieces of a window of `length` samples at `seek`, numbered from 0; empty ones without time or text."""
        for number, piece in enumerate(pieces):
            stop = length if piece.stop is None else piece.stop
            text = self.text(piece.tokens)
            said = piece.start != stop and bool(text.strip())
            yield Segment(
                id=number,
                seek=seek // self.clock.frame,
                start=self._time(seek + piece.start),
                end=self._time(seek + stop),
                text=text if said else "",
                tokens=piece.tokens if said else (),
                temperature=attempt.temperature,
                avg_logprob=attempt.avg_logprob,
                compression_ratio=attempt.compression_ratio,
                no_speech_prob=attempt.no_speech_prob,
            )

    def _time(self, sample: int) -> float:
        return min(sample, self.samples) / self.clock.rate


Context = Mapping[str, object]
"""What a window is told of the text before it, as a Processor's options: `prompt`, text, and `previous`, token ids."""

Decode = Callable[[int, int, Context], Dialogue[Attempt]]
"""decode(start, stop, context): an attempt at the window of those samples that can be believed."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A window's attempt and its segments, of which a silent one has none."""

    attempt: Attempt
    segments: tuple[Segment, ...]


def sequential(
    recording: Recording, decode: Decode, fallback: Fallback, prompt: str | None, condition: bool
) -> Dialogue[list[Heard]]:
    """All windows of a recording, up to one that fails.

    prompt: what was said before it. condition: whether a window is told the text of all that came before it, which is
    forgotten when one had to be decoded at a high temperature.
    """
    clock, heard, seek = recording.clock, list[Heard](), 0
    end = recording.samples // clock.frame * clock.frame
    told: tuple[int, ...] = ()
    while seek < end:
        length = min(clock.window, end - seek)
        attempt = yield from decode(seek, seek + length, {"prompt": prompt, "previous": told})
        if attempt.failed:
            return [*heard, Heard(attempt, ())]
        pieces, advance = ([], length) if fallback.silent(attempt) else _finished(cut(attempt.tokens, clock), length)
        heard.append(Heard(attempt, tuple(recording.segments(pieces, attempt, seek, length))))
        told = (*told, *(token for segment in heard[-1].segments for token in segment.tokens))[-TOLD:]
        if pieces and not (condition and attempt.temperature <= WARM):
            prompt, told = None, ()
        seek += advance
    return heard


def _finished(pieces: list[Piece], length: int) -> tuple[list[Piece], int]:
    """What a window says for good, and how far: an open piece behind others is left to the next window."""
    if len(pieces) == 1 or pieces[-1].stop is not None:
        return pieces, length
    return pieces[:-1], pieces[-2].stop or length
