"""Where turns of live speech begin and end: at silences, found while audio comes in, or where somebody says so.

Owns the turn that goes on, and the little audio that is kept from before one. Knows no text and no engine.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from transduce.media.audio import Samples
from transduce.media.voice import FRAME, RATE, Voice, Voiced
from transduce.speech.activity import SpanFinder, VadOptions
from transduce.speech.live import Turn

ENDLESS = 1e9
"""Seconds: the window bounds what is heard at once, so that speech is never cut for its length."""
BLOCK = 32
"""Frames that are listened to in one call."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A stretch of audio. spoken: for how many samples speech has gone on by its end, with pauses; 0: nobody speaks.

    voiced: whether the stretch itself is speech.
    """

    samples: Samples
    spoken: int
    voiced: bool


class Ear:
    """Tells frame by frame whether somebody speaks. One hears one speaker's audio, at RATE."""

    def __init__(self, voice: Voice, options: VadOptions) -> None:
        self._threshold = options.threshold
        self._finder = SpanFinder(replace(options, speech_pad=0.0, max_speech=ENDLESS))
        self._rest = np.zeros(0, np.float32)
        self._block = self._rest
        self._at = 0
        self._voiced = voice.probabilities(self._blocks())

    def hear(self, samples: Samples) -> Iterator[Heard]:
        """Frames that are complete now."""
        self._rest = np.concatenate((self._rest, samples))
        while count := min(len(self._rest) // FRAME, BLOCK):
            self._block, self._rest = self._rest[: count * FRAME], self._rest[count * FRAME :]
            block, voiced = self._block, next(self._voiced)
            for frame, probability in zip(np.split(block, count), np.split(voiced.probabilities, count), strict=True):
                self._at += FRAME
                for _ in self._finder.add(Voiced(probability, self._at)):
                    pass  # a span without padding ends where none is open any more
                yield Heard(frame, self._at - self._finder.settled, bool(probability[0] >= self._threshold))

    def rest(self) -> Samples:
        """What completes no frame; it is not heard."""
        rest, self._rest = self._rest, self._rest[:0]
        return rest

    def _blocks(self) -> Iterator[Samples]:
        """Endless: of each block of whole frames, `voice` tells all before it asks for another."""
        while True:
            yield self._block


@dataclass(frozen=True, slots=True)
class Change:
    """A turn has begun, or has ended. at: where, in samples of all audio, the silence that tells so included."""

    turn: Turn
    at: int
    begins: bool


class Listener:
    """Makes turns of a speaker's audio, mono at RATE. window: samples, see Turn. at: samples that came before.

    With VadOptions, heard by `voice`, turns begin `speech_pad` before speech and end with `min_silence` after it; what
    is between them is not kept. Without, a turn begins with the first samples, and goes on until it is ended.
    """

    def __init__(self, window: int, voice: Voice | None, options: VadOptions | None, at: int = 0) -> None:
        self.at = at
        self.open: Turn | None = None
        """The turn that goes on."""
        self._window = window
        self._ear = Ear(voice, options) if voice is not None and options is not None else None
        pad, least, silence = (options.speech_pad, options.min_speech, options.min_silence) if options else (0, 0, 0)
        self._pad, self._least, self._silence = int(pad * RATE), int(least * RATE), int(silence * RATE)
        self._before = np.zeros(0, np.float32)

    def hear(self, samples: Samples) -> Iterator[Change]:
        """Go on; yields what that begins or ends. Iterate it to its end."""
        for heard in [Heard(samples, len(samples), True)] if self._ear is None else self._ear.hear(samples):
            self.at += len(heard.samples)
            if self.open is None:
                yield from self._wait(heard)
            else:
                yield from self._go_on(self.open, heard)

    def end(self) -> Turn | None:
        """The turn that goes on ends here; returns it."""
        turn, self.open = self.open, None
        if turn is not None:
            rest = self._ear.rest() if self._ear is not None else self._before
            self.at += len(rest)
            turn.add(rest)
            turn.end()
        return turn

    def clear(self) -> Turn | None:
        """What was heard of the turn that goes on is not part of any; returns it."""
        turn, self.open = self.open, None
        self._before = self._before[:0]
        return turn

    def _go_on(self, turn: Turn, heard: Heard) -> Iterator[Change]:
        turn.add(heard.samples)
        if not heard.spoken:
            self.open = None
            turn.end(self._silence)
            yield Change(turn, self.at, begins=False)

    def _wait(self, heard: Heard) -> Iterator[Change]:
        """A click is no speech, nor is the silence that follows it."""
        self._before = np.concatenate((self._before, heard.samples))
        if heard.voiced and heard.spoken >= self._least:
            lead, self._before = self._before[-(heard.spoken + self._pad) :], self._before[:0]
            self.open = Turn(self.at - len(lead), RATE, self._window)
            self.open.add(lead)
            yield Change(self.open, self.open.start, begins=True)
        elif not heard.spoken:
            self._before = self._before[max(0, len(self._before) - self._pad) :]
