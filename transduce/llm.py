"""LLM: the offline API. Prompts in, finished answers out, after vLLM's names.

Owns the choice of what runs in a batch. Knows no model family: languages are what the checkpoint lists.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from numbers import Real
from threading import Lock
from typing import Any, TypeVar, Unpack, overload

from transduce import engine
from transduce.config import from_options
from transduce.core.params import SamplingParams
from transduce.errors import EngineError, RequestError, TransduceError
from transduce.frontend import targets as scoring
from transduce.frontend.batch import BEGINNING, Batch
from transduce.frontend.chat import answered, conversations, policy
from transduce.frontend.collector import refused
from transduce.frontend.dialogue import Dialogue, Work, once
from transduce.frontend.documents import Page, Reader, raised
from transduce.frontend.frontend import Params, checked
from transduce.frontend.load import load_frontend, load_processor
from transduce.frontend.outputs import RequestOutput, TargetScore
from transduce.frontend.progress import AudioBar, Bar, PageBar
from transduce.frontend.prompts import Prompt, Target, token_ids
from transduce.media.audio import Audio
from transduce.media.image import DPI, Image
from transduce.speech.asked import Options, Speech, known
from transduce.speech.transcriber import Transcriber
from transduce.speech.transcription import Transcription, failed

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
        priority: Sequence[int] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answers to one prompt or a list of them, in the order given.

        prompts: in any of the forms of `transduce.frontend.prompts`, mixed as you like. sampling_params: one for all,
        or one for each; None: as the checkpoint's generation_config.json says. priority: one for each: prompts of lower
        ones are begun first.

        A bad prompt among several costs no other its answer: its output has `error` set, empty text and finish_reason
        "error". A single bad prompt raises RequestError, and a step that failed under it EngineError. Ctrl-C stops
        after the running step, with KeyboardInterrupt.
        """
        several = _several(prompts)
        params = _each(sampling_params, len(several))
        works = [Work(*pair) for pair in zip(several, params, strict=True)]
        return self._run(works, use_tqdm, order=_order(priority, len(several)))

    def chat(
        self,
        messages: Sequence[Any],
        sampling_params: Params | Sequence[Params] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answers to one conversation, a list of messages as OpenAI has them, or to a list of conversations.

        Content is a text, or parts: {"type": "text", "text": …}, {"type": "image_url", "image_url": {"url": …}} as far
        as the options on media allow, {"type": "image", "image": …} in any form of `media.image`. Else as `generate`.
        """
        several, allowed = conversations(messages), policy(self.config)
        pairs = zip(several, _each(sampling_params, len(several)), strict=True)
        with ThreadPoolExecutor(BEGINNING) as threads:
            talks = [answered(*pair, self.frontend, allowed, threads) for pair in pairs]
            return self._talk(talks, refused, Bar(len(talks), use_tqdm))

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
        sampling_params: Params | None = None,
        use_tqdm: bool = True,
        done: Callable[[int, Transcription], None] = lambda place, said: None,
        **options: Unpack[Options],
    ) -> Transcription | list[Transcription]:
        """What is said in one recording (a Transcription) or in a list of them (a list), each of any length.

        audio: a path, the bytes of a file, or (samples, rate). language: such as "en"; None: the checkpoint's own or,
        where it speaks several, the one detected. task: "translate" is into English. prompt: what was said before, as
        context. options: see Speech; those named here are the ones that say most. sampling_params are those of each
        window. done(place, said) is called as soon as a recording is transcribed, or has failed. Errors are as in
        `generate`.

        A clip of one window is heard without timestamps, but for timestamps=True, which marks segments in the text, as
        <|1.20|>. Longer audio is heard window by window, each of which begins where the last segment before it ends,
        after that text unless condition_on_previous_text is False. A window, and a clip, that cannot be believed is
        decoded again, see Fallback, unless sampling_params have a temperature.

        With vad_filter, True or VadOptions, only speech is heard, and side by side: in windows that are cut at silences
        and are told nothing of each other. They are decoded again as those of longer audio are, and have their times.

        With word_timestamps segments have `words`, and begin and end as these do; a window of longer audio begins where
        the last word before it ends. With hallucination_silence_threshold, in seconds, segments that seem made up are
        dropped where so much silence is beside them; a clip is heard as longer audio then. RequestError for a model
        that writes no timestamps.
        """
        speech = Speech(language=language, task=task, prompt=prompt, **known(options))
        transcriber = Transcriber(self.frontend, speech)
        recordings = audio if isinstance(audio, list) else [audio]
        params = _each(sampling_params, len(recordings))
        bar = AudioBar(len(recordings), use_tqdm)
        dialogues = [
            transcriber.dialogue(*each, at=partial(bar.hear, place))
            for place, each in enumerate(zip(recordings, params, strict=True))
        ]
        refused = partial(failed, language=transcriber.language)
        said = self._talk(dialogues, refused, bar, done)
        return said if isinstance(audio, list) else said[0]

    @overload
    def read(self, documents: list[Any], *args: Any, **options: Any) -> list[list[Page]]: ...

    @overload
    def read(self, documents: Image, *args: Any, **options: Any) -> list[Page]: ...

    def read(
        self,
        documents: Image | list[Image],
        prompt: str | None = None,
        *,
        sampling_params: Params | Sequence[Params] | None = None,
        dpi: int = DPI,
        use_tqdm: bool = True,
        done: Callable[[int, list[Page]], None] = lambda place, pages: None,
    ) -> list[Page] | list[list[Page]]:
        """What is on the pages of one document (a list of Pages) or of a list of them (a list of lists).

        documents: an image, a TIFF of any number of pages or a PDF, in the forms of `media.image.pages`; all pages of
        all of them are one batch. prompt: beside each page. sampling_params: one for all documents, or one for each.
        dpi: at which the pages of a PDF are drawn. done(place, pages) is called as soon as a document is read.

        A page that fails has its `error` set and costs no other its text; so has the page from which on nothing of a
        document can be read. At most max_num_seqs pages are held at once. RequestError for a model without images.
        """
        media = self.frontend.processor.media
        if media != "image":
            raise RequestError(f"this model takes {media or 'text'}, and documents are images; use another model")
        several = documents if isinstance(documents, list) else [documents]
        bar, most = PageBar(len(several), use_tqdm), self.config.max_num_seqs
        reader = Reader(self.frontend, bar, prompt, dpi, most)
        params = _each(sampling_params, len(several))
        dialogues = [*map(reader.dialogue, several, params)]
        found, _ = self._results(dialogues, raised, bar, done, ahead=most)
        return found if isinstance(documents, list) else found[0]

    def _run(self, work: Sequence[Work], progress: bool, order: Sequence[int] = ()) -> list[RequestOutput]:
        return self._talk([*map(once, work)], refused, Bar(len(work), progress), order=order)

    def _talk(
        self,
        dialogues: Sequence[Dialogue[T]],
        refused: Callable[[str, RequestError], T],
        bar: Bar,
        done: Callable[[int, T], None] = lambda place, result: None,
        order: Sequence[int] = (),
    ) -> list[T]:
        """Results, one for each; the error of a single one is raised."""
        results, errors = self._results(dialogues, refused, bar, done, order, ahead=2 * self.config.max_num_seqs)
        if len(results) == 1 and errors:
            raise errors[0]
        return results

    def _results(
        self,
        dialogues: Sequence[Dialogue[T]],
        refused: Callable[[str, RequestError], T],
        bar: Bar,
        done: Callable[[int, T], None],
        order: Sequence[int] = (),
        *,
        ahead: int,
    ) -> tuple[list[T], list[TransduceError]]:
        if not dialogues:
            raise RequestError("an empty list: give at least one prompt, clip or document")
        batch = Batch(
            self.engine,
            self.frontend,
            dialogues,
            ahead=ahead,
            ids=self._ids,
            refused=refused,
            done=done,
            bar=bar,
            order=order,
        )
        with self._alone():
            return batch.run(), batch.errors

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


def _order(priority: Sequence[int] | None, number: int) -> Sequence[int]:
    """Places of prompts in the order in which they are begun; none: as they are."""
    if priority is None:
        return ()
    given: Any = priority
    whole = isinstance(given, list | tuple) and all(type(each) is int for each in given)
    if not whole or len(given) != number:
        raise RequestError(f"priority={given!r:.80} for {number} prompts; give a list of whole numbers, one for each")
    return sorted(range(number), key=given.__getitem__)
