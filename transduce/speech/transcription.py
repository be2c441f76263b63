"""Transcribing one recording: what is asked about it, in which order, and what a Transcription is made of.

Owns the choice between a clip, which is one window, and long audio. Knows no engine: whoever has one drives the
dialogue.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from transduce.errors import ConfigError, RequestError
from transduce.frontend.collector import refused
from transduce.frontend.dialogue import Dialogue, Work
from transduce.frontend.frontend import Frontend, Params
from transduce.frontend.outputs import RequestOutput
from transduce.media.audio import Audio, Excerpt, Samples, decode, stream
from transduce.media.voice import RATE, Voice
from transduce.models.base import Clock, Spoken
from transduce.speech.activity import VadOptions
from transduce.speech.asked import Speech
from transduce.speech.fallback import Attempt, Fallback, Reader, decoded
from transduce.speech.joined import joined, silence
from transduce.speech.language import Languages
from transduce.speech.parallel import Counted, Hearing, parallel
from transduce.speech.segments import Segment
from transduce.speech.sequential import Context, Heard, Pace, Piece, Recording, cut, sequential
from transduce.speech.windows import Clip, clips
from transduce.speech.words import ALIGN, Spelling, timed

Ask = Callable[[int, int, Context], Callable[[Params], Work]]
"""ask(start, stop, context)(params): the Work of a window of those samples, which is told that."""

At = Callable[[float, float], None]
"""at(seconds, duration): so many seconds of a recording have been heard by now."""

HELD = 4 * 3600
"""Seconds of audio, 0.9 GB, beyond which no further recording is decoded beside others."""

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


class Transcriber:
    """Makes Work of recordings and Transcriptions of outputs. Raises ConfigError for a model that hears nothing."""

    def __init__(self, frontend: Frontend, speech: Speech) -> None:
        if "transcribe" not in frontend.spec.tasks:
            raise ConfigError(f"{frontend.config.model!r} transcribes no speech; use generate")
        self._frontend = frontend
        self._speech = speech
        if speech.word_timestamps and not self._stamps(self._timing()[0]):
            raise RequestError(f"word_timestamps: {frontend.config.model!r} does not tell when it hears what")
        self._held = 0.0
        self._languages = Languages(frontend, speech.language, self._heard)
        self.language = self._languages.known
        """The language if it is known without hearing the recording."""

    def dialogue(
        self, audio: Audio, params: Params, tell: Tell | None = None, at: At = lambda seconds, duration: None
    ) -> Dialogue[Transcription]:
        """The transcription of a recording of any length, params being those of each window. Raises RequestError.

        tell: in the thread that advances the dialogue, or that of a driver that streams.
        """
        if params.prompt_logprobs is not None:
            raise RequestError(f"prompt_logprobs={params.prompt_logprobs}: a transcription has none; use generate")
        if (voice := self._speech.voice) is not None:
            return (yield from self._between_silences(audio, voice, params, tell, at))
        recording, part = self._decoded(audio)
        self._held += recording.seconds
        try:
            heard = yield from self._transcribed(recording, part, params, tell, at)
        finally:
            self._held -= recording.seconds
        at(recording.seconds, recording.seconds)
        return replace(heard, duration=recording.seconds)

    def has_room(self) -> bool:
        """Whether another recording may be decoded beside those whose dialogues are open."""
        return self._held < HELD

    def _transcribed(
        self, recording: Recording, part: Callable[[int, int], Excerpt], params: Params, tell: Tell | None, at: At
    ) -> Dialogue[Transcription]:
        window = recording.clock.window
        output = yield from self._languages.asked(part(0, min(window, recording.samples)))
        if output is not None and output.error is not None:
            return self.result(output, None)
        language, probability = self._languages.told(output)

        def ask(start: int, stop: int, context: Context) -> Callable[[Params], Work]:
            at(start / recording.clock.rate, recording.seconds)
            return partial(self.work, part(start, stop), language, options={"no_speech": True, **context})

        threshold = self._speech.hallucination_silence_threshold
        hear = self._clip if recording.samples <= window and threshold is None else self._long
        heard = yield from hear(recording, ask, params, tell)
        return replace(heard, language_probability=probability)

    def _between_silences(
        self, audio: Audio, options: VadOptions, params: Params, tell: Tell | None, at: At
    ) -> Dialogue[Transcription]:
        """The speech in a recording, which is decoded while its windows are heard: only those are held."""
        clock, reader = self._timing()
        assert clock.rate == RATE, "models hear what voices are found in"
        pieces = Counted(stream(audio, RATE, self._most(clock)))
        options = options.within(clock.window / RATE)
        found = clips(pieces, Voice(), options)
        heard = yield from self._windows(found, options.speech_pad, clock, reader, params, tell, at)
        seconds = pieces.samples / RATE
        at(seconds, seconds)
        return replace(heard, duration=seconds)

    def _windows(
        self,
        found: Iterator[Clip],
        padding: float,
        clock: Clock,
        reader: Reader,
        params: Params,
        tell: Tell | None,
        at: At,
    ) -> Dialogue[Transcription]:
        first = next(found, None)
        if first is None:
            return Transcription("", self.language, silence())
        output = yield from self._languages.asked(_excerpt(first.samples))
        if output is not None and output.error is not None:
            return self.result(output, None)
        language, probability = self._languages.told(output)
        fallback = self._speech.fallback or Fallback()
        asked = {"timestamps": self._stamps(clock), "no_speech": True}

        def hear(samples: Samples) -> Dialogue[Attempt]:
            work = partial(self.work, _excerpt(samples), language, options=asked)
            return decoded(work, params, fallback, reader)

        def words(samples: Samples, said: Heard, spoken: float) -> Dialogue[Heard]:
            def ask(context: Context) -> Callable[[Params], Work]:
                return partial(self.work, _excerpt(samples), language, options=context)

            return self._timed(ask, len(samples), said, spoken)

        def told(heard: Sequence[Heard]) -> None:
            at(max((segment.end for each in heard for segment in each.segments), default=0.0), math.inf)
            if tell is not None and heard:
                tell(self._whole(heard, finished=False))

        most = self._frontend.config.max_num_seqs
        timed = words if self._speech.word_timestamps else None
        hearing = Hearing(clock, reader, fallback, hear, timed, padding)
        heard = yield from parallel(chain([first], found), hearing, told, most)
        return replace(self._whole(heard, finished=True), language_probability=probability)

    def work(
        self, audio: Audio | Excerpt, language: str | None, params: Params, options: Mapping[str, object] = {}
    ) -> Work:
        """Asks for what is said in a window. options: the processor's, that go before those of the Speech."""
        speech = self._speech
        asked = {"task": speech.task, "prompt": speech.prompt, "timestamps": speech.timestamps, "language": language}
        return Work(self._heard(audio), params, {**asked, **options})

    def result(self, output: RequestOutput, language: str | None) -> Transcription:
        """What the output of a clip says. language: as given or detected."""
        return Transcription(output.outputs[0].text.strip(), self._languages.spoken(output, language), output)

    def _decoded(self, audio: Audio) -> tuple[Recording, Callable[[int, int], Excerpt]]:
        """A recording, and its samples from one to another."""
        clock, reader = self._timing()
        samples = decode(audio, clock.rate, self._most(clock))
        level = self._frontend.processor.level(samples) if len(samples) > clock.window else None
        return Recording(len(samples), clock, reader), partial(Excerpt, samples, level=level)

    def _timing(self) -> tuple[Clock, Reader]:
        with self._frontend.lock:
            clock = self._frontend.processor.clock
        return clock, Reader(partial(self._text, clock.zero), frozenset(self._frontend.defaults.eos))

    def _stamps(self, clock: Clock) -> bool:
        """Whether the model writes timestamps."""
        return clock.zero < self._frontend.spec.target_vocab

    def _most(self, clock: Clock) -> int | None:
        """Samples of the longest recording that is allowed."""
        longest = self._speech.max_seconds
        return None if longest is None else int(longest * clock.rate)

    def _clip(self, recording: Recording, ask: Ask, params: Params, tell: Tell | None) -> Dialogue[Transcription]:
        """One window, all of whose tokens are its text. With a fallback nothing is told: it may be decoded again."""
        work, reader, fallback = ask(0, recording.samples, {}), recording.reader, self._speech.fallback
        if fallback is None:
            told = None if tell is None else partial(self._told, tell)
            (output,) = yield [replace(work(params), tell=told)]
            attempt = reader.attempt(output, params.temperature or 0.0)
        else:
            attempt = yield from decoded(work, params, fallback, reader)
        if attempt.failed:
            return self.result(attempt.output, self.language)
        said = self.result(attempt.output, self.language)
        if fallback is not None and fallback.silent(attempt):
            return replace(said, text="")
        stamped = self._speech.timestamps
        pieces = cut(attempt.tokens, recording.clock) if stamped else [Piece(0, None, attempt.tokens)]
        window = Heard(attempt, tuple(recording.segments(pieces, attempt, 0, recording.samples)))
        if self._speech.word_timestamps:
            window = yield from self._timed(partial(ask, 0, recording.samples), recording.samples, window)
        return replace(said, output=window.attempt.output, segments=window.segments)

    def _told(self, tell: Tell, output: RequestOutput) -> None:
        tell(self.result(output, self.language))

    def _long(self, recording: Recording, ask: Ask, params: Params, tell: Tell | None) -> Dialogue[Transcription]:
        speech, fallback = self._speech, self._speech.fallback or Fallback()

        def window(start: int, stop: int, context: Context) -> Dialogue[Attempt]:
            return decoded(ask(start, stop, {"timestamps": True, **context}), params, fallback, recording.reader)

        def told(heard: Sequence[Heard]) -> None:
            if tell is not None:
                tell(self._whole(heard, finished=False))

        def words(said: Heard, start: int, stop: int, spoken: float) -> Dialogue[Heard]:
            return self._timed(partial(ask, start, stop), stop - start, said, spoken)

        pace = Pace(words, speech.hallucination_silence_threshold) if speech.word_timestamps else None
        condition = speech.condition_on_previous_text
        heard = yield from sequential(recording, window, fallback, speech.prompt, condition, told, pace)
        return self._whole(heard, finished=True)

    def _timed(
        self, ask: Callable[[Context], Callable[[Params], Work]], samples: int, said: Heard, spoken: float = 0.0
    ) -> Dialogue[Heard]:
        """A window of so many samples with its words. ask: its Work, with options and parameters."""
        clock, reader = self._timing()
        language = self._languages.spoken(said.attempt.output, None)
        spelling = Spelling(reader.text, self._frontend.processor.tokenizer.eos_token_id, language)

        def align(tokens: Spoken) -> Work:
            return ask({"spoken": tokens, "prompt": None, "timestamps": False})(ALIGN)

        return said.worded((yield from timed(said.segments, samples, clock, align, spelling, spoken)))

    def _whole(self, heard: Sequence[Heard], finished: bool) -> Transcription:
        """What windows of long audio say."""
        text, segments, output = joined(heard, self._speech.timestamps, finished)
        return Transcription(text, self._languages.spoken(output, self.language), output, segments)

    def _text(self, zero: int, tokens: Sequence[int]) -> str:
        """Of tokens without timestamps, which are those from `zero` on."""
        spell = self._frontend.processor.decoding(True, {})
        assert spell is not None, "timestamps have a tokenizer"
        with self._frontend.lock:
            return spell([token for token in tokens if token < zero])

    def _heard(self, audio: Audio | Excerpt) -> dict[str, object]:
        return {"multi_modal_data": {self._frontend.processor.media: audio}, "cache_salt": self._speech.salt}


def _excerpt(samples: Samples) -> Excerpt:
    return Excerpt(samples, 0, len(samples))
