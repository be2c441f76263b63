"""Transcribing recordings: what is asked about one, and in which order.

Owns the choice between a clip, which is one window, long audio, speech between silences, and channels by themselves.
Knows no engine: whoever has one drives the dialogue.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from transduce.errors import RequestError
from transduce.frontend.ahead import Ahead
from transduce.frontend.dialogue import Dialogue, Work
from transduce.frontend.frontend import Frontend, Params
from transduce.frontend.outputs import RequestOutput
from transduce.media.audio import Audio, Channel, Decoded, Samples, Whole, channels, stream
from transduce.media.tape import Held, Reel
from transduce.media.voice import RATE, Voice
from transduce.speech.activity import VadOptions
from transduce.speech.asked import Speech
from transduce.speech.channels import separately
from transduce.speech.fallback import ONCE, Attempt, Fallback
from transduce.speech.joined import silence
from transduce.speech.listener import Listener
from transduce.speech.parallel import Counted, Hearing, parallel
from transduce.speech.sequential import Context, Heard, Pace, Piece, Recording, cut, sequential
from transduce.speech.transcription import At, Tell, Transcription
from transduce.speech.windows import Clip, clips

Ask = Callable[[int, int, Context], Callable[[Params], Work]]
"""ask(start, stop, context)(params): the Work of a window of those samples, which is told that."""

AHEAD = 2
"""Windows of speech that are found before the engine has room for them."""

BESIDE = 100
"""Frames around an excerpt of a long recording: more than its features look beyond its edges."""


class Transcriber:
    """Transcribes recordings as a Speech has it. Raises ConfigError for a model that hears nothing, and RequestError
    for what no recording can be asked.
    """

    def __init__(self, frontend: Frontend, speech: Speech) -> None:
        self._frontend = frontend
        self._speech = speech
        self._listener = Listener(frontend, speech)
        speech.search.check(frontend.config.max_num_seqs)
        for name in ("word_timestamps", "clip_timestamps"):
            if getattr(speech, name) and not self._listener.stamps:
                raise RequestError(f"{name}: {frontend.config.model!r} does not tell when it hears what")
        self.language = self._listener.languages.known
        """The language if it is known without hearing the recording."""

    def dialogue(
        self, audio: Audio, params: Params, tell: Tell | None = None, at: At = lambda seconds, duration: None
    ) -> Dialogue[Transcription]:
        """The transcription of a recording of any length, params being those of each window. Raises RequestError.

        tell: in the thread that advances the dialogue, or that of a driver that streams. Channels by themselves are
        not told before all are heard.
        """
        params = self._listener.params(params)
        if not self._speech.separate:
            return (yield from self._heard(audio, params, tell, at))
        each = [partial(self._heard, Channel(audio, index), params, None) for index in range(channels(audio))]
        return (yield from separately(each, self._speech.timestamps, at))

    def _heard(self, audio: Audio | Channel, params: Params, tell: Tell | None, at: At) -> Dialogue[Transcription]:
        if (voice := self._speech.voice) is not None:
            return (yield from self._between_silences(audio, voice, params, tell, at))
        clock = self._listener.clock
        begin = partial(stream, audio, clock.rate, self._most)
        pieces = Counted(begin())
        excerpt = yield from self._measured(begin, pieces)
        whole = Recording(pieces.samples, clock, self._listener.reader)
        heard = yield from self._transcribed(whole, excerpt, params, tell, at)
        at(whole.seconds, whole.seconds)
        return replace(heard, duration=whole.seconds)

    def _measured(
        self, begin: Callable[[], Iterator[Samples]], pieces: Counted
    ) -> Dialogue[Callable[[int, int], Decoded]]:
        """Listen to all pieces; returns a recording's samples from one to another. Of a long one few are held: it is
        decoded once to measure it, in a thread, and once again while it is heard.
        """
        clock, level = self._listener.clock, self._frontend.processor.level
        held, rest = list[Samples](), iter(pieces)
        while pieces.samples <= clock.window and (piece := next(rest, None)) is not None:
            held.append(piece)
        if pieces.samples <= clock.window:
            return Held(np.concatenate(held), level, clock.frame).excerpt
        with Ahead(map(level, [chain(held, rest)]), 1) as measured, closing(pieces):
            yield measured.coming()
            return Reel(begin, next(measured), BESIDE * clock.frame).excerpt

    def _transcribed(
        self,
        whole: Recording,
        excerpt: Callable[[int, int], Decoded],
        params: Params,
        tell: Tell | None,
        at: At,
    ) -> Dialogue[Transcription]:
        languages, window = self._listener.languages, whole.clock.window
        parts = [whole.part(*part) for part in self._speech.parts] or [whole]
        first = parts[0]
        output = yield from languages.asked(excerpt(first.start, min(first.start + window, first.samples)))
        if output is not None and output.error is not None:
            return self._listener.result(output, None)
        language, probability = languages.told(output)

        def ask(start: int, stop: int, context: Context) -> Callable[[Params], Work]:
            at(start / whole.clock.rate, whole.seconds)
            return partial(self._listener.work, excerpt(start, stop), language, options={"no_speech": True, **context})

        as_long = whole.samples > window or (self._speech.as_long and self._listener.stamps and whole.end > 0)
        hear = self._long(parts, ask, params, tell) if as_long else self._clip(whole, ask, params, tell)
        return replace((yield from hear), language_probability=probability)

    def _clip(self, recording: Recording, ask: Ask, params: Params, tell: Tell | None) -> Dialogue[Transcription]:
        """One window, all of whose tokens are its text. It is told, and has one attempt, or may have several."""
        listener, stamped, samples = self._listener, self._speech.timestamps, recording.samples
        fallback = self._speech.fallback or (Fallback() if tell is None else ONCE)
        told = None if tell is None or fallback is not ONCE else partial(self._told, tell)

        def asked(context: Context) -> Callable[[Params], Work]:
            return lambda params: replace(ask(0, samples, context)(params), tell=told)

        attempt = yield from listener.attempt(asked, {"timestamps": stamped}, params, fallback, first=True)
        said = listener.result(attempt.output, self.language)
        if attempt.failed or fallback.silent(attempt):
            return said if attempt.failed else replace(said, text="")
        pieces = cut(attempt.tokens, recording.clock) if stamped else [Piece(0, None, attempt.tokens)]
        window = Heard(attempt, tuple(recording.segments(pieces, attempt, 0, samples)))
        if self._speech.word_timestamps:
            window = yield from listener.timed(partial(ask, 0, samples), samples, window)
        return replace(said, output=window.attempt.output, segments=window.segments)

    def _told(self, tell: Tell, output: RequestOutput) -> None:
        tell(self._listener.result(output, self.language))

    def _long(self, parts: Sequence[Recording], ask: Ask, params: Params, tell: Tell | None) -> Dialogue[Transcription]:
        speech, listener, fallback = self._speech, self._listener, self._speech.fallback or Fallback()

        def window(start: int, stop: int, context: Context) -> Dialogue[Attempt]:
            told = {"timestamps": True, **context}
            return listener.attempt(partial(ask, start, stop), told, params, fallback, first=start == parts[0].start)

        def told(heard: Sequence[Heard]) -> None:
            if tell is not None:
                tell(listener.whole(heard, finished=False))

        def words(said: Heard, start: int, stop: int, spoken: float) -> Dialogue[Heard]:
            return listener.timed(partial(ask, start, stop), stop - start, said, spoken)

        pace = Pace(words, speech.hallucination_silence_threshold) if speech.word_timestamps else None
        condition = speech.condition_on_previous_text
        heard = yield from sequential(parts, window, fallback, speech.prompt, condition, told, pace)
        return listener.whole(heard, finished=True)

    def _between_silences(
        self, audio: Audio | Channel, options: VadOptions, params: Params, tell: Tell | None, at: At
    ) -> Dialogue[Transcription]:
        """The speech in a recording, which is decoded while its windows are heard: only those are held."""
        clock = self._listener.clock
        assert clock.rate == RATE, "models hear what voices are found in"
        pieces = Counted(stream(audio, RATE, self._most))
        options = options.within(clock.window / RATE)
        with Ahead(clips(pieces, Voice(), options), AHEAD) as found, closing(pieces):
            heard = yield from self._windows(found, options.speech_pad, params, tell, at)
        seconds = pieces.samples / RATE
        at(seconds, seconds)
        return replace(heard, duration=seconds)

    def _windows(
        self, found: Ahead[Clip], padding: float, params: Params, tell: Tell | None, at: At
    ) -> Dialogue[Transcription]:
        yield found.coming()
        first, listener = found.coming().result(), self._listener
        if first is None:
            return Transcription("", self.language, silence())
        output = yield from listener.languages.asked(Whole(first.samples))
        if output is not None and output.error is not None:
            return listener.result(output, None)
        language, probability = listener.languages.told(output)
        fallback = self._speech.fallback or Fallback()

        def ask(samples: Samples, context: Context) -> Callable[[Params], Work]:
            return partial(listener.work, Whole(samples), language, options=context)

        def hear(samples: Samples) -> Dialogue[Attempt]:
            context = {"timestamps": listener.stamps, "no_speech": True}
            return listener.attempt(partial(ask, samples), context, params, fallback)

        def words(samples: Samples, said: Heard, spoken: float) -> Dialogue[Heard]:
            return listener.timed(partial(ask, samples), len(samples), said, spoken)

        def told(heard: Sequence[Heard]) -> None:
            at(max((segment.end for each in heard for segment in each.segments), default=0.0), math.inf)
            if tell is not None and heard:
                tell(listener.whole(heard, finished=False))

        timed = words if self._speech.word_timestamps else None
        hearing = Hearing(listener.clock, listener.reader, fallback, hear, timed, padding)
        heard = yield from parallel(found, hearing, told, self._frontend.config.max_num_seqs)
        return replace(listener.whole(heard, finished=True), language_probability=probability)

    @property
    def _most(self) -> int | None:
        """Samples of the longest recording that is allowed."""
        longest = self._speech.max_seconds
        return None if longest is None else int(longest * self._listener.clock.rate)
