"""LLM: the offline API. Prompts in, finished answers out, after vLLM's names.

Owns the choice of what runs in a batch. Knows no model family: languages are what the checkpoint lists.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from numbers import Real
from threading import Lock
from typing import Any, TypeVar, overload

from transduce import engine
from transduce.config import from_options
from transduce.core.params import SamplingParams
from transduce.errors import EngineError, RequestError
from transduce.frontend import targets as scoring
from transduce.frontend.batch import Batch
from transduce.frontend.collector import refused
from transduce.frontend.dialogue import Dialogue, Work, once
from transduce.frontend.frontend import Params, checked
from transduce.frontend.load import load_frontend, load_processor
from transduce.frontend.outputs import RequestOutput, TargetScore
from transduce.frontend.progress import AudioBar, Bar
from transduce.frontend.prompts import Prompt, Target, token_ids
from transduce.media.audio import Audio
from transduce.speech.activity import VadOptions
from transduce.speech.asked import Speech
from transduce.speech.fallback import Fallback
from transduce.speech.transcription import Transcriber, Transcription, failed

T = TypeVar("T")


class LLM:
    """A loaded model. It serves one thread at a time: a call while another runs raises EngineError.

    model: a folder, or a hub id. options: the fields of EngineConfig. `about`: what was chosen for the model.
    Raises ConfigError or CheckpointError.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        config = from_options(model, options)
        loaded = engine.load(config)
        self.config = loaded.config
        self.about = loaded.about
        self.engine = loaded.engine
        processor = load_processor(loaded.checkpoint, config)
        self.frontend = load_frontend(
            loaded.checkpoint, processor, config, loaded.config, loaded.about.dtype, loaded.engine.room
        )
        self._ids = map(str, count())
        self._lock = Lock()

    def get_tokenizer(self) -> Any:
        """The checkpoint's transformers tokenizer; None with skip_tokenizer_init."""
        return self.frontend.processor.tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params | Sequence[Params] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answers to one prompt or a list of them, in the order given.

        prompts: in any of the forms of `transduce.frontend.prompts`, mixed as you like. sampling_params: one for all,
        or one for each; None: as the checkpoint's generation_config.json says.

        A bad prompt among several costs no other its answer: its output has `error` set, empty text and finish_reason
        "error". A single bad prompt raises RequestError, and a step that failed under it EngineError. Ctrl-C stops
        after the running step, with KeyboardInterrupt.
        """
        several = _several(prompts)
        params = _each(sampling_params, len(several))
        return self._run([Work(*pair) for pair in zip(several, params, strict=True)], use_tqdm)

    def score_target(
        self,
        sources: Prompt | Sequence[Prompt],
        targets: Target | Sequence[Target],
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
    ) -> list[TargetScore]:
        """How likely the model finds targets that are given, each for its source; one for each pair, in their order.

        As many of both, or one of them for all of the others; a source is encoded once, however many targets it has.
        Text becomes the tokens that the model learnt it by, EOS among them; token ids are taken as they are. Nothing
        edits the scores: no rule, no temperature. truncate_prompt_tokens: keep so many tokens of each source. Errors
        are as in `generate`, and ConfigError for a model of speech.
        """
        scoring.check(self.frontend)
        pairs = scoring.paired(_several(sources), _several(targets))
        params = scoring.params(truncate_prompt_tokens)
        return [*map(scoring.score, self._run([scoring.work(*pair, params) for pair in pairs], use_tqdm))]

    @overload
    def transcribe(self, audio: list[Any], *args: Any, **options: Any) -> list[Transcription]: ...

    @overload
    def transcribe(self, audio: Audio, *args: Any, **options: Any) -> Transcription: ...

    def transcribe(
        self,
        audio: Audio | list[Audio],
        language: str | None = None,
        task: str = "transcribe",
        prompt: str | None = None,
        *,
        timestamps: bool = False,
        condition_on_previous_text: bool = True,
        fallback: Fallback | None = None,
        vad_filter: bool | VadOptions = False,
        word_timestamps: bool = False,
        hallucination_silence_threshold: float | None = None,
        sampling_params: Params | None = None,
        use_tqdm: bool = True,
        done: Callable[[int, Transcription], None] = lambda place, said: None,
    ) -> Transcription | list[Transcription]:
        """What is said in one recording (a Transcription) or in a list of them (a list), each of any length.

        audio: a path, the bytes of a file, or (samples, rate). language: such as "en"; None: the checkpoint's own or,
        where it speaks several, the one detected. task: "translate" is into English. prompt: what was said before, as
        context. timestamps: mark segments in the text, as <|1.20|>. Errors are as in `generate`.

        A clip of one window is heard as `generate` hears it. Longer audio is heard window by window, each of which
        begins where the last segment before it ends, after that text unless condition_on_previous_text is False. A
        window that cannot be believed is decoded again, see Fallback, unless sampling_params have a temperature; a
        clip only where `fallback` is given. sampling_params are those of each window. done(place, said) is called as
        soon as a recording is transcribed, or has failed.

        With vad_filter, True or VadOptions, only speech is heard, and side by side: in windows that are cut at silences
        and are told nothing of each other. They are decoded again as those of longer audio are, and have their times.

        With word_timestamps segments have `words`, and begin and end as these do; a window of longer audio begins where
        the last word before it ends. With hallucination_silence_threshold, in seconds, segments that seem made up are
        dropped where so much silence is beside them; a clip is heard as longer audio then. RequestError for a model
        that writes no timestamps.
        """
        speech = Speech(
            language=language,
            task=task,
            prompt=prompt,
            timestamps=timestamps,
            condition_on_previous_text=condition_on_previous_text,
            fallback=fallback,
            vad_filter=vad_filter,
            word_timestamps=word_timestamps,
            hallucination_silence_threshold=hallucination_silence_threshold,
        )
        transcriber = Transcriber(self.frontend, speech)
        recordings = audio if isinstance(audio, list) else [audio]
        params = _each(sampling_params, len(recordings))
        bar = AudioBar(len(recordings), use_tqdm)
        dialogues = [
            transcriber.dialogue(*each, at=partial(bar.hear, place))
            for place, each in enumerate(zip(recordings, params, strict=True))
        ]
        refused = partial(failed, language=transcriber.language)
        said = self._talk(dialogues, refused, bar, transcriber.has_room, done)
        return said if isinstance(audio, list) else said[0]

    def _run(self, work: Sequence[Work], progress: bool) -> list[RequestOutput]:
        return self._talk([*map(once, work)], refused, Bar(len(work), progress))

    def _talk(
        self,
        dialogues: Sequence[Dialogue[T]],
        refused: Callable[[str, RequestError], T],
        bar: Bar,
        room: Callable[[], bool] = lambda: True,
        done: Callable[[int, T], None] = lambda place, result: None,
    ) -> list[T]:
        if not dialogues:
            raise RequestError("an empty list: give at least one prompt or clip")
        batch = Batch(
            self.engine,
            self.frontend,
            dialogues,
            ahead=2 * self.config.max_num_seqs,
            ids=self._ids,
            refused=refused,
            room=room,
            done=done,
            bar=bar,
        )
        with self._alone():
            results = batch.run()
        if len(results) == 1 and batch.errors:
            raise batch.errors[0]
        return results

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise EngineError(
                "an LLM serves one thread at a time, and a call is running; give all prompts in one list, or take turns"
            )
        try:
            yield
        finally:
            self._lock.release()


def _several(prompts: Any) -> Sequence[Prompt]:
    """A list of prompts as it is; one prompt, be it a list of token ids or (samples, rate), as a list of one.

    (rate, samples) is one too: what is said about it is better than about two prompts.
    """
    clip = isinstance(prompts, tuple) and len(prompts) == 2 and any(isinstance(each, Real) for each in prompts)
    several = isinstance(prompts, list | tuple) and not clip and not token_ids(prompts)
    return prompts if several else [prompts]


def _each(params: Params | Sequence[Params] | None, number: int) -> list[Params]:
    if params is None:
        params = SamplingParams()
    several: Sequence[Any] = params if isinstance(params, list | tuple) else [params] * number
    if len(several) != number:
        raise RequestError(f"{len(several)} sampling_params for {number} prompts; give one for all, or one for each")
    return [checked(each) for each in several]
