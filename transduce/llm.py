"""LLM: the offline API. Prompts in, finished answers out, after vLLM's names.

Owns the choice of what runs in a batch. Knows no model family: languages are what the checkpoint lists.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from numbers import Real
from threading import Lock
from typing import Any, overload

from transduce import engine
from transduce.config import from_options
from transduce.core.params import SamplingParams
from transduce.errors import EngineError, RequestError
from transduce.frontend.batch import Batch, Work
from transduce.frontend.frontend import Params, checked
from transduce.frontend.load import load_frontend, load_processor
from transduce.frontend.outputs import RequestOutput, Transcription
from transduce.frontend.prompts import Prompt, token_ids
from transduce.frontend.transcription import Speech, Transcriber
from transduce.media.audio import Audio


class LLM:
    """A loaded model. It serves one thread at a time: a call while another runs raises EngineError.

    model: a folder, or a hub id. options: the fields of EngineConfig. Raises ConfigError or CheckpointError.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        config = from_options(model, options)
        loaded = engine.load(config)
        self.config = loaded.config
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
        sampling_params: Params | None = None,
        use_tqdm: bool = True,
    ) -> Transcription | list[Transcription]:
        """What is said in one clip (a Transcription) or in a list of them (a list), each of at most 30 s.

        audio: a path, the bytes of a file, or (samples, rate). language: such as "en"; None: the checkpoint's own or,
        where it speaks several, the one detected. task: "translate" is into English. prompt: what was said before, as
        context. timestamps: mark segments in the text, as <|1.20|>. Errors are as in `generate`.
        """
        speech = Speech(language=language, task=task, prompt=prompt, timestamps=timestamps)
        transcriber = Transcriber(self.frontend, speech)
        clips = audio if isinstance(audio, list) else [audio]
        params = _each(sampling_params, len(clips))
        languages = self._languages(transcriber, clips, use_tqdm)
        work = [transcriber.work(*each) for each in zip(clips, languages, params, strict=True)]
        outputs = self._run(work, use_tqdm)
        said = [transcriber.result(*each) for each in zip(outputs, languages, strict=True)]
        return said if isinstance(audio, list) else said[0]

    def _languages(self, transcriber: Transcriber, clips: Sequence[Audio], use_tqdm: bool) -> list[str | None]:
        if not transcriber.detects:
            return [transcriber.language] * len(clips)
        return [*map(transcriber.detected, self._run([*map(transcriber.detection, clips)], use_tqdm))]

    def _run(self, work: Sequence[Work], progress: bool) -> list[RequestOutput]:
        ahead = 2 * self.config.max_num_seqs
        if not work:
            raise RequestError("an empty list: give at least one prompt or clip")
        batch = Batch(self.engine, self.frontend, work, ahead=ahead, ids=self._ids, progress=progress)
        with self._alone():
            outputs = batch.run()
        if len(outputs) == 1 and outputs[0].error is not None:
            raise batch.refusals[0] if batch.refusals else EngineError(outputs[0].error)
        return outputs

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
