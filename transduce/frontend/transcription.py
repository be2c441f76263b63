"""Transcribing one clip: which requests it takes, and what their answers say.

Owns the detection of a language and what a Transcription is made of. Knows no engine: whoever has one runs the Work.
"""

from dataclasses import dataclass

from transduce.core.params import SamplingParams
from transduce.errors import ConfigError
from transduce.frontend.batch import Work
from transduce.frontend.frontend import Frontend, Params
from transduce.frontend.outputs import RequestOutput, Transcription
from transduce.media.audio import Audio


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """How clips are to be transcribed. language: such as "en"; None: the checkpoint's own, or the one detected.

    task: "translate" is into English. prompt: what was said before. timestamps: mark segments in the text.
    salt: see `prompts.Parts`.
    """

    language: str | None = None
    task: str = "transcribe"
    prompt: str | None = None
    timestamps: bool = False
    salt: str | None = None


class Transcriber:
    """Makes Work of clips and Transcriptions of outputs. Raises ConfigError for a model that hears nothing."""

    def __init__(self, frontend: Frontend, speech: Speech) -> None:
        if "transcribe" not in frontend.spec.tasks:
            raise ConfigError(f"{frontend.config.model!r} transcribes no speech; use generate")
        self._frontend = frontend
        self._speech = speech
        self._codes = {token: code for code, token in frontend.defaults.languages.items()}
        self.language = speech.language or frontend.defaults.language or frontend.processor.language
        """The language if it is known without hearing the clip."""

    @property
    def detects(self) -> bool:
        """Whether a clip's language is to be detected first, by the Work of `detection`."""
        return self.language is None and bool(self._codes)

    def detection(self, clip: Audio) -> Work:
        """Asks for the likeliest first token among the languages'.

        A clip is encoded once: transcribing it finds the encoder's output in the cache. top_k=1 takes the likeliest,
        as greedy decoding would, of a checkpoint that asks for beams too.
        """
        among = sorted(self._codes)
        params = SamplingParams(temperature=1.0, top_k=1, seed=0, max_tokens=1, allowed_token_ids=among)
        start = {"prompt_token_ids": [self._frontend.defaults.decoder_start_token_id]}
        return Work(self._heard(clip) | start, params)

    def detected(self, output: RequestOutput) -> str | None:
        """The language that a detection found; None where it failed."""
        first = output.outputs[0].token_ids
        return self._codes[first[0]] if first else None

    def work(self, clip: Audio, language: str | None, params: Params) -> Work:
        """Asks for the transcription."""
        speech = self._speech
        options = {"task": speech.task, "prompt": speech.prompt, "timestamps": speech.timestamps, "language": language}
        return Work(self._heard(clip), params, options)

    def result(self, output: RequestOutput, language: str | None) -> Transcription:
        """What the output says. language: as given or detected."""
        return Transcription(output.outputs[0].text.strip(), self._spoken(output, language), output)

    def _spoken(self, output: RequestOutput, given: str | None) -> str | None:
        """The language's code, as the decoder's prompt has it, or the model's only one; as given where nothing ran."""
        if not output.prompt_token_ids:
            return given
        named = (self._codes[token] for token in output.prompt_token_ids if token in self._codes)
        return next(named, self._frontend.processor.language or given)

    def _heard(self, clip: Audio) -> dict[str, object]:
        return {"multi_modal_data": {self._frontend.processor.media: clip}, "cache_salt": self._speech.salt}
