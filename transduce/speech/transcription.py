"""Transcribing one recording: what is asked about it, in which order, and what a Transcription is made of.

Owns the detection of a language, and the choice between a clip, which is one window, and long audio. Knows no engine:
whoever has one drives the dialogue.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from transduce.core.params import SamplingParams
from transduce.errors import ConfigError, RequestError
from transduce.frontend.collector import refused
from transduce.frontend.dialogue import Dialogue, Work
from transduce.frontend.frontend import Frontend, Params
from transduce.frontend.outputs import CompletionOutput, RequestMetrics, RequestOutput
from transduce.media.audio import Audio, Excerpt, decode
from transduce.models.base import Clock
from transduce.speech.fallback import Attempt, Fallback, Reader, decoded
from transduce.speech.segments import Segment
from transduce.speech.sequential import Context, Heard, Piece, Recording, cut, sequential


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """How recordings are to be transcribed. language: such as "en"; None: the checkpoint's own, or the one detected.

    task: "translate" is into English. prompt: what was said before. timestamps: mark segments in the text.
    condition_on_previous_text: whether a window of long audio is told the text before it. fallback: None is Fallback()
    for long audio, and none for a clip. max_seconds: of audio; None: any. salt: see `prompts.Parts`.
    """

    language: str | None = None
    task: str = "transcribe"
    prompt: str | None = None
    timestamps: bool = False
    condition_on_previous_text: bool = True
    fallback: Fallback | None = None
    max_seconds: float | None = None
    salt: str | None = None


class Transcriber:
    """Makes Work of recordings and Transcriptions of outputs. Raises ConfigError for a model that hears nothing."""

    def __init__(self, frontend: Frontend, speech: Speech) -> None:
        if "transcribe" not in frontend.spec.tasks:
            raise ConfigError(f"{frontend.config.model!r} transcribes no speech; use generate")
        self._frontend = frontend
        self._speech = speech
        self._codes = {token: code for code, token in frontend.defaults.languages.items()}
        self.language = speech.language or frontend.defaults.language or frontend.processor.language
        """The language if it is known without hearing the recording."""

    def dialogue(self, audio: Audio, params: Params) -> Dialogue[Transcription]:
        """The transcription of a recording of any length, params being those of each window. Raises RequestError."""
        if params.prompt_logprobs is not None:
            raise RequestError(f"prompt_logprobs={params.prompt_logprobs}: a transcription has none; use generate")
        with self._frontend.lock:
            clock = self._frontend.processor.clock
        longest = self._speech.max_seconds
        samples = decode(audio, clock.rate, None if longest is None else int(longest * clock.rate))
        long = len(samples) > clock.window
        level = self._frontend.processor.level(samples) if long else None
        part = partial(Excerpt, samples, level=level)
        language, probability = self.language, None
        if self.detects:
            (output,) = yield [self.detection(part(0, min(len(samples), clock.window)))]
            language, probability = self.detected(output), _probability(output)
            if output.error is not None:
                return Transcription("", language, output, (), len(samples) / clock.rate)
        recording = Recording(len(samples), clock, self._reader(clock).text)
        hear = self._long if long else self._clip
        said = yield from hear(recording, part, language, params)
        return replace(said, duration=recording.seconds, language_probability=probability)

    @property
    def detects(self) -> bool:
        """Whether a recording's language is to be detected first, by the Work of `detection`."""
        return self.language is None and bool(self._codes)

    def detection(self, audio: Audio | Excerpt) -> Work:
        """Asks for the likeliest first token among the languages'.

        A window is encoded once: transcribing it finds the encoder's output in the cache. top_k=1 takes the likeliest,
        as greedy decoding would, of a checkpoint that asks for beams too.
        """
        among = sorted(self._codes)
        params = SamplingParams(temperature=1.0, top_k=1, seed=0, max_tokens=1, allowed_token_ids=among, logprobs=0)
        start = {"prompt_token_ids": [self._frontend.defaults.decoder_start_token_id]}
        return Work(self._heard(audio) | start, params)

    def detected(self, output: RequestOutput) -> str | None:
        """The language that a detection found; None where it failed."""
        first = output.outputs[0].token_ids
        return self._codes[first[0]] if first else None

    def work(
        self, audio: Audio | Excerpt, language: str | None, params: Params, options: Mapping[str, object] = {}
    ) -> Work:
        """Asks for what is said in a window. options: the processor's, that go before those of the Speech."""
        speech = self._speech
        asked = {"task": speech.task, "prompt": speech.prompt, "timestamps": speech.timestamps, "language": language}
        return Work(self._heard(audio), params, {**asked, **options})

    def result(self, output: RequestOutput, language: str | None) -> Transcription:
        """What the output of a clip says. language: as given or detected."""
        return Transcription(output.outputs[0].text.strip(), self._spoken(output, language), output)

    def _clip(
        self, recording: Recording, part: Callable[[int, int], Excerpt], language: str | None, params: Params
    ) -> Dialogue[Transcription]:
        """One window, all of whose tokens are its text."""
        length, clock = recording.samples, recording.clock
        ask = partial(self.work, part(0, length), language, options={"no_speech": True})
        reader, fallback = self._reader(clock), self._speech.fallback
        if fallback is None:
            (output,) = yield [ask(params)]
            attempt = reader.attempt(output, params.temperature or 0.0)
        else:
            attempt = yield from decoded(ask, params, fallback, reader)
        pieces = cut(attempt.tokens, clock) if self._speech.timestamps else [Piece(0, None, attempt.tokens)]
        segments = recording.segments(pieces, attempt, 0, length)
        return replace(self.result(attempt.output, language), segments=() if attempt.failed else tuple(segments))

    def _long(
        self, recording: Recording, part: Callable[[int, int], Excerpt], language: str | None, params: Params
    ) -> Dialogue[Transcription]:
        speech, reader = self._speech, self._reader(recording.clock)
        fallback = speech.fallback or Fallback()

        def window(start: int, stop: int, context: Context) -> Dialogue[Attempt]:
            options = {"timestamps": True, "no_speech": True, **context}
            return decoded(partial(self.work, part(start, stop), language, options=options), params, fallback, reader)

        heard = yield from sequential(recording, window, fallback, speech.prompt, speech.condition_on_previous_text)
        segments = tuple(
            replace(segment, id=id_) for id_, segment in enumerate(each for one in heard for each in one.segments)
        )
        text = "".join(_marked(segment) if speech.timestamps else segment.text for segment in segments).strip()
        output = _joined(heard, text)
        return Transcription(text, self._spoken(output, language), output, segments)

    def _reader(self, clock: Clock) -> Reader:
        """Text is without timestamps, as it is measured and shown in segments."""
        frontend = self._frontend
        spell = frontend.processor.decoding(True, {})
        assert spell is not None, "timestamps have a tokenizer"

        def text(tokens: Sequence[int]) -> str:
            with frontend.lock:
                return spell([token for token in tokens if token < clock.zero])

        return Reader(text, frozenset(frontend.defaults.eos))

    def _spoken(self, output: RequestOutput, given: str | None) -> str | None:
        """The language's code, as the decoder's prompt has it, or the model's only one; as given where nothing ran."""
        if not output.prompt_token_ids:
            return given
        named = (self._codes[token] for token in output.prompt_token_ids if token in self._codes)
        return next(named, self._frontend.processor.language or given)

    def _heard(self, audio: Audio | Excerpt) -> dict[str, object]:
        return {"multi_modal_data": {self._frontend.processor.media: audio}, "cache_salt": self._speech.salt}


def _probability(output: RequestOutput) -> float | None:
    logprob = output.outputs[0].cumulative_logprob
    return None if logprob is None else math.exp(logprob)


def _marked(segment: Segment) -> str:
    """Its text between its times, in the form of Whisper's timestamps."""
    return f"<|{segment.start:.2f}|>{segment.text}<|{segment.end:.2f}|>" if segment.text else ""


def _joined(heard: Sequence[Heard], text: str) -> RequestOutput:
    """The outputs of windows as one: the first one's prompt, all tokens, and whether the last one failed."""
    outputs = [each.attempt.output for each in heard]
    first, last = outputs[0], outputs[-1]
    tokens = [token for output in outputs for token in output.outputs[0].token_ids]
    times = RequestMetrics(
        first.metrics.arrival_time,
        first.metrics.first_scheduled_time,
        first.metrics.first_token_time,
        last.metrics.finished_time,
    )
    answer = CompletionOutput(0, text, tokens, finish_reason=last.outputs[0].finish_reason)
    return replace(first, outputs=[answer], metrics=times, error=last.error)
