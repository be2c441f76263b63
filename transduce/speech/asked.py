"""How recordings are to be transcribed: one record of everything that is asked but the decoding of a window.

Owns what goes together. Knows no model: what one cannot do, a Transcriber says.
"""

from dataclasses import dataclass

from transduce.errors import RequestError
from transduce.speech.activity import VadOptions
from transduce.speech.fallback import Fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """How recordings are to be transcribed. language: such as "en"; None: the checkpoint's own, or the one detected.

    task: "translate" is into English. prompt: what was said before. timestamps: mark segments in the text.
    condition_on_previous_text: whether a window of long audio is told the text before it. fallback: None is Fallback()
    for long audio, and none for a clip. vad_filter: whether only speech is heard, in windows that are cut at silences
    and told nothing of each other. word_timestamps: whether segments have words, and windows of long audio begin after
    these. hallucination_silence_threshold: seconds of silence beside which what seems made up is dropped, of clips too,
    which are heard as long audio then. max_seconds: of audio; None: any. salt: see `prompts.Parts`.

    Raises RequestError.
    """

    language: str | None = None
    task: str = "transcribe"
    prompt: str | None = None
    timestamps: bool = False
    condition_on_previous_text: bool = True
    fallback: Fallback | None = None
    vad_filter: bool | VadOptions = False
    word_timestamps: bool = False
    hallucination_silence_threshold: float | None = None
    max_seconds: float | None = None
    salt: str | None = None

    def __post_init__(self) -> None:
        vad = self.vad_filter
        if not isinstance(vad, bool | VadOptions):
            raise RequestError(f"vad_filter of type {type(vad).__name__}: give True, False or VadOptions")
        if self.hallucination_silence_threshold is not None:
            self._check(self.hallucination_silence_threshold)

    @property
    def voice(self) -> VadOptions | None:
        """How speech is told from silence; None where all is heard."""
        if isinstance(self.vad_filter, VadOptions):
            return self.vad_filter
        return VadOptions() if self.vad_filter else None

    def _check(self, silence: float) -> None:
        name = f"hallucination_silence_threshold={silence}"
        if not silence >= 0:
            raise RequestError(f"{name}: give seconds, 0 or more")
        if not self.word_timestamps:
            raise RequestError(f"{name}: silence is what is between words; give word_timestamps=True too")
        if self.voice is not None:
            raise RequestError(f"{name}: with vad_filter silence is not heard at all; leave one of them out")
