"""Whisper's inputs: audio to log-mel features, and the prompt that says what to do with it.

Owns the prompt's grammar: [<|startofprev|> text] <|startoftranscript|> [language task] [<|notimestamps|>].
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from transformers import WhisperFeatureExtractor
from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

from transduce.core.checks import shown
from transduce.core.request import Attention, EncoderItem, RuleSpec, Scored
from transduce.errors import CheckpointError, MediaError, RequestError
from transduce.media.audio import Audio, Excerpt, Samples, Whole, decode
from transduce.models.base import Clock, Decode, Processor, Spoken
from transduce.models.whisper import older
from transduce.models.whisper.features import LogMel
from transduce.models.whisper.rules import Timestamps

OPTIONS = frozenset(
    {"language", "task", "timestamps", "prompt", "previous", "prefix", "hotwords", "no_speech", "spoken"}
)
TASKS = ("transcribe", "translate")

CHARACTERS = 128
"""More than a token has."""

WINDOWS = 10
"""Of audio that is too long, so many are decoded to say how long it is."""


def feature_extractor(folder: Path, mels: int, rows: int) -> WhisperFeatureExtractor:
    """The checkpoint's own, or Whisper's usual one; CheckpointError where it does not fit the model."""
    if (folder / "preprocessor_config.json").exists():
        extractor = WhisperFeatureExtractor.from_pretrained(folder)
    else:
        extractor = WhisperFeatureExtractor(feature_size=mels)
    if (extractor.feature_size, extractor.nb_max_frames) != (mels, 2 * rows):
        raise CheckpointError(
            f"preprocessor_config.json makes {extractor.feature_size} x {extractor.nb_max_frames} features, "
            f"config.json asks for {mels} x {2 * rows}"
        )
    return extractor


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a checkpoint says about prompts. language, task: where the request names none.

    previous: the most tokens of earlier text, so that at least half of the decoder's positions stay free.
    first_timestamp: steps of 0.02 s within which speech must begin where timestamps are asked for; None: anywhere.
    positions: of the decoder. heads: the cross-attention heads, each (layer, head), that follow what is spoken.
    """

    start: int | None
    multilingual: bool
    language: str | None
    task: str
    previous: int
    first_timestamp: int | None
    positions: int = 448
    heads: tuple[tuple[int, int], ...] = ()


class WhisperProcessor(Processor):
    """Audio of one window to features; language, task, timestamps and earlier text to decoder tokens."""

    media = "audio"

    def __init__(self, tokenizer: Any, extractor: WhisperFeatureExtractor, prompt: Prompt) -> None:
        self.tokenizer = tokenizer
        self.extractor = extractor
        self.prompt = prompt
        self.language = None if prompt.multilingual else "en"
        self._log_mel = LogMel(extractor)

    def updated(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return older.updated(self.tokenizer, fields, TASKS) if self.tokenizer and self.prompt.multilingual else fields

    @property
    def clock(self) -> Clock:
        extractor = self.extractor
        step = 2 * extractor.hop_length  # an encoder row
        zero = self._token("<|notimestamps|>") + 1
        return Clock(extractor.sampling_rate, extractor.n_samples, extractor.hop_length, step, zero)

    def level(self, pieces: Iterable[Samples]) -> float:
        return self._log_mel.level(pieces)

    def source_ids(self, text: str) -> list[int]:
        raise RequestError(f"the encoder takes audio, not text; give multi_modal_data with audio beside {shown(text)}")

    def item(self, source: object) -> EncoderItem:
        """One window of audio, padded with silence; MediaError where it is longer than the window.

        An excerpt of a longer recording keeps its place in that: what stands around its edges is heard with it.
        """
        features = self._features(source)
        rows = features.shape[1] // 2
        return EncoderItem(features.astype(np.float32), rows=rows, cost=rows)

    def _features(self, source: object) -> npt.NDArray[np.float32]:
        match source:
            case Excerpt():
                return self._log_mel.features(source)
            case Whole(samples):
                return self._padded(samples)
            case _:
                most = WINDOWS * self.extractor.n_samples
                return self._padded(decode(cast(Audio, source), self.extractor.sampling_rate, most))

    def _padded(self, samples: Samples) -> npt.NDArray[np.float32]:
        rate, window = self.extractor.sampling_rate, self.extractor.n_samples
        if len(samples) > window:
            raise MediaError(
                f"audio of {len(samples) / rate:.9g} s is longer than the model's {window / rate:g} s and is not "
                f"transcribed in one go yet; cut it into pieces of at most {window / rate:g} s"
            )
        return self._log_mel.clip(samples)

    def decoder_ids(self, prompt: str | Sequence[int] | None, options: Mapping[str, object]) -> tuple[int, ...]:
        """As in Processor. options: language ("en", "english"), task, timestamps (bool), prompt (earlier text),
        previous (a tuple of the token ids that came after it, timestamps among them), hotwords (text that stands before
        all that, if there is no prefix), prefix (token ids that the answer begins with), no_speech (bool): see `probe`;
        spoken (Spoken): the ids of a text follow, as many as there is room for, and the end token. It comes twice: what
        is known of a prompt's last token is nothing.
        """
        given = {name: value for name, value in options.items() if value is not None}
        if unknown := given.keys() - OPTIONS:
            raise RequestError(f"unknown option {', '.join(sorted(unknown))}; known: {', '.join(sorted(OPTIONS))}")
        if not prompt:
            ids = (*self._before(given), self._start(), *self._directions(given), *self._begun(given))
            return (*ids, *self._spoken(given, self.prompt.positions - len(ids) - 1))
        if given:
            raise RequestError(f"a decoder prompt already says what {', '.join(sorted(given))} would; give one")
        ids = self._ids(prompt) if isinstance(prompt, str) else tuple(prompt)
        return ids if self.prompt.start in ids else (self._start(), *ids)

    def rules(self, start: Sequence[int], options: Mapping[str, object]) -> tuple[RuleSpec, ...]:
        if not options.get("timestamps"):
            return ()
        ids = self._token("<|notimestamps|>"), self._loaded().eos_token_id
        begin = len(start) - len(self._begun(options))
        return (RuleSpec(Timestamps.name, (begin, *ids, self.prompt.first_timestamp)),)

    def probe(self, start: Sequence[int], options: Mapping[str, object]) -> Scored | None:
        """Of a token that checkpoints name <|nospeech|> or <|nocaptions|>: it always stands before <|notimestamps|>.

        Of a text, its tokens among all of text, and what is heard as each.
        """
        match options.get("spoken"):
            case Spoken(rows=rows):
                first, end = start.index(self._token("<|notimestamps|>")) + 1, start[-1]
                attention = Attention(self.prompt.heads, rows)
                return Scored(first, targets=tuple(start[first:-2]), among=end, attention=attention)
        if not options.get("no_speech"):
            return None
        return Scored(start.index(self._start()) + 1, targets=(self._token("<|notimestamps|>") - 1,))

    def decoding(self, skip_special_tokens: bool, options: Mapping[str, object]) -> Decode | None:
        if self.tokenizer is None or not options.get("timestamps"):
            return super().decoding(skip_special_tokens, options)
        return partial(self.tokenizer.decode, skip_special_tokens=skip_special_tokens, decode_with_timestamps=True)

    def _start(self) -> int:
        if self.prompt.start is None:
            raise RequestError("the checkpoint names no decoder_start_token_id; give decoder token ids")
        return self.prompt.start

    def _directions(self, options: Mapping[str, object]) -> tuple[int, ...]:
        timestamps = options.get("timestamps", False)
        if not isinstance(timestamps, bool):
            raise RequestError(f"timestamps {shown(timestamps)}: give true or false")
        tail = () if timestamps else (self._token("<|notimestamps|>"),)
        language = options.get("language", self.prompt.language)
        task = options.get("task", self.prompt.task)
        if task not in TASKS:
            raise RequestError(f"task {shown(task)} is unknown; give {' or '.join(TASKS)}")
        if self.prompt.multilingual:
            return (self._language(language), self._token(f"<|{task}|>"), *tail)
        if language is not None and _code(language) != "en":
            raise RequestError(f"language {shown(language)}: this model is English-only; leave language out")
        if task != "transcribe":
            raise RequestError(f"task {shown(task)}: this model is English-only and can only transcribe")
        return tail

    def _language(self, language: object) -> int:
        if language is None:
            raise RequestError(
                "this model speaks many languages; name the audio's, such as language='en' or a decoder prompt of "
                "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"
            )
        try:
            return self._token(f"<|{_code(language)}|>")
        except CheckpointError:
            raise RequestError(
                f"language {shown(language)} is unknown to this model; give a code such as 'en'"
            ) from None

    def _spoken(self, options: Mapping[str, object], room: int) -> tuple[int, ...]:
        match options.get("spoken"):
            case Spoken(tokens=tokens):
                end = self._loaded().eos_token_id
                return (*tokens[:room], end, end)
        return ()

    def _before(self, options: Mapping[str, object]) -> tuple[int, ...]:
        """Hotwords, and earlier text as context, its end where it is too long."""
        most = self.prompt.previous
        hot = () if options.get("prefix") else self._plain("hotwords", options)
        self._fits("hotwords", hot)
        late = {"prompt": _end(str(options.get("prompt") or ""), most * CHARACTERS)}
        ids = (*self._plain("prompt", late), *cast(tuple[int, ...], options.get("previous", ())))
        told = (*hot, *ids[max(0, len(ids) + len(hot) - most) :])
        return (self._token("<|startofprev|>"), *told) if told else ()

    def _begun(self, options: Mapping[str, object]) -> tuple[int, ...]:
        """What the answer begins with, after the first timestamp if it has some."""
        ids = cast(tuple[int, ...], options.get("prefix") or ())
        if not ids:
            return ()
        self._refuse_special("prefix", self.tokenizer.decode(ids).strip(), ids)
        self._fits("prefix", ids)
        return (self._token("<|notimestamps|>") + 1, *ids) if options.get("timestamps") else ids

    def _fits(self, name: str, ids: Sequence[int]) -> None:
        if len(ids) > (most := self.prompt.previous):
            raise RequestError(f"{name} has {len(ids)} tokens, and the decoder has room for {most}; shorten it")

    def _plain(self, name: str, options: Mapping[str, object]) -> tuple[int, ...]:
        if not (text := options.get(name)):
            return ()
        ids = self._ids(f" {str(text).strip()}")
        self._refuse_special(name, text, ids)
        return ids

    def _refuse_special(self, name: str, text: object, ids: Sequence[int]) -> None:
        if "\0" in str(text) or any(token >= self.tokenizer.eos_token_id for token in ids):
            what = "NUL" if "\0" in str(text) else "a special token"
            raise RequestError(f"{name} {shown(text)} holds {what}; give plain text")

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._loaded()(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _token(self, token: str) -> int:
        tokenizer = self._loaded()
        found: int = tokenizer.convert_tokens_to_ids(token)
        if tokenizer.convert_ids_to_tokens(found) != token:
            raise CheckpointError(f"the tokenizer has no token {token}")
        return found

    def _loaded(self) -> Any:
        if self.tokenizer is None:
            raise RequestError("no tokenizer was loaded; give the decoder's token ids as the prompt")
        return self.tokenizer


def _end(text: str, most: int) -> str:
    """Whole words of a text's last characters."""
    return text if len(text) <= most else text[-most:].partition(" ")[2] or text[-most:]


def _code(language: object) -> str:
    """A language's code from its code, its English name or its token."""
    name = str(language).lower().removeprefix("<|").removesuffix("|>")
    code: str = TO_LANGUAGE_CODE.get(name, name)
    return code
