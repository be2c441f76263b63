"""Asking about one window of a recording, as a Speech has it, and reading what is answered.

Owns what the model is told of a window, and what its outputs say. Knows neither where windows begin nor an engine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from transduce.errors import ConfigError, RequestError
from transduce.frontend.dialogue import Dialogue, Work
from transduce.frontend.frontend import Frontend, Params
from transduce.frontend.outputs import RequestOutput
from transduce.media.audio import Decoded
from transduce.models.base import Clock, Spoken
from transduce.speech.asked import Speech
from transduce.speech.fallback import Attempt, Fallback, Reader, decoded
from transduce.speech.joined import joined
from transduce.speech.language import Languages
from transduce.speech.sequential import Context, Heard
from transduce.speech.transcription import Transcription
from transduce.speech.words import ALIGN, Spelling, timed

Ask = Callable[[Context], Callable[[Params], Work]]
"""ask(context)(params): the Work of a window that is told that."""


class Listener:
    """Makes Work of windows and reads outputs. Raises ConfigError for a model that hears nothing."""

    def __init__(self, frontend: Frontend, speech: Speech) -> None:
        if "transcribe" not in frontend.spec.tasks:
            raise ConfigError(f"{frontend.config.model!r} transcribes no speech; use generate")
        self._frontend = frontend
        self.speech = speech
        self.languages = Languages(frontend, speech.language, self._heard)

    @cached_property
    def clock(self) -> Clock:
        """The model's."""
        with self._frontend.lock:
            return self._frontend.processor.clock

    @cached_property
    def reader(self) -> Reader:
        """Of outputs."""
        return Reader(self._text, frozenset(self._frontend.defaults.eos))

    @property
    def stamps(self) -> bool:
        """Whether the model writes timestamps."""
        return self.clock.zero < self._frontend.spec.target_vocab

    def params(self, given: Params) -> Params:
        """The parameters of windows. Raises RequestError for what a transcription has not, or what is said twice."""
        if given.prompt_logprobs is not None:
            raise RequestError(f"prompt_logprobs={given.prompt_logprobs}: a transcription has none; use generate")
        asked, own = self.speech.suppressed, self._frontend.defaults.suppress_tokens
        if asked is None:
            return given
        if given.suppress_tokens is not None:
            raise RequestError("suppress_tokens is in sampling_params too; give one of them")
        kept = own if -1 in asked else [token for token in own if token >= self._end]
        return replace(given, suppress_tokens=sorted({*kept, *asked} - {-1}))

    def work(self, audio: Decoded, language: str | None, params: Params, options: Mapping[str, object] = {}) -> Work:
        """Asks for what is said in a window. options: the processor's, that go before those of the Speech."""
        speech = self.speech
        asked = {name: getattr(speech, name) for name in ("task", "prompt", "timestamps", "hotwords")}
        return Work(self._heard(audio), params, {**asked, "language": language, **options})

    def attempt(
        self, ask: Ask, context: Context, params: Params, fallback: Fallback, first: bool = False
    ) -> Dialogue[Attempt]:
        """An attempt at a window that can be believed. first: whether it begins with the prefix."""
        prefix = self._prefix if first else ()
        begun = (self.clock.zero, *prefix) if prefix and context["timestamps"] else prefix
        work = ask({**context, "prefix": prefix})
        return decoded(work, params, fallback, self.reader, self.speech.search, begun)

    def timed(self, ask: Ask, samples: int, said: Heard, spoken: float = 0.0) -> Dialogue[Heard]:
        """A window of so many samples with its words."""
        language = self.languages.spoken(said.attempt.output, None)
        spelling = Spelling(self.reader.text, self._end, language)

        def align(tokens: Spoken) -> Work:
            return ask({"spoken": tokens, "prompt": None, "hotwords": None, "timestamps": False})(ALIGN)

        return said.worded((yield from timed(said.segments, samples, self.clock, align, spelling, spoken)))

    def result(self, output: RequestOutput, language: str | None) -> Transcription:
        """What the output of a clip says, prefix included. language: as given or detected."""
        stamp = "<|0.00|>" if self.speech.timestamps else ""
        begun = f"{stamp} {self.speech.prefix.strip()}" if self.speech.prefix else ""
        text = f"{begun}{output.outputs[0].text}".strip()
        return Transcription(text, self.languages.spoken(output, language), output)

    def whole(self, heard: Sequence[Heard], finished: bool) -> Transcription:
        """What windows of long audio say."""
        text, segments, output = joined(heard, self.speech.timestamps, finished)
        return Transcription(text, self.languages.spoken(output, self.languages.known), output, segments)

    @property
    def _end(self) -> int:
        """The end token: no text has it or a greater one."""
        end: int = self._frontend.processor.tokenizer.eos_token_id
        return end

    @cached_property
    def _prefix(self) -> tuple[int, ...]:
        text, tokenizer = self.speech.prefix, self._frontend.processor.tokenizer
        if not text:
            return ()
        if tokenizer is None:
            raise RequestError("prefix is text, and no tokenizer was loaded; leave it out")
        with self._frontend.lock:
            return tuple(tokenizer(f" {text.strip()}", add_special_tokens=False, verbose=False)["input_ids"])

    def _text(self, tokens: Sequence[int]) -> str:
        """Of tokens without timestamps."""
        spell = self._frontend.processor.decoding(True, {})
        assert spell is not None, "timestamps have a tokenizer"
        zero = self.clock.zero
        with self._frontend.lock:
            return spell([token for token in tokens if token < zero])

    def _heard(self, audio: Decoded) -> dict[str, object]:
        return {"multi_modal_data": {self._frontend.processor.media: audio}, "cache_salt": self.speech.salt}
