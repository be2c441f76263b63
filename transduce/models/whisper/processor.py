"""Whisper's inputs: audio to log-mel features, and the prompt that says what to do with it.

Owns the prompt's grammar: [<|startofprev|> text] <|startoftranscript|> [language task] [<|notimestamps|>].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import WhisperFeatureExtractor
from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

from transduce.core.request import EncoderItem, RuleSpec
from transduce.errors import CheckpointError, MediaError, RequestError
from transduce.media.audio import Audio, decode
from transduce.models.base import Decode, Processor
from transduce.models.whisper.rules import Timestamps

OPTIONS = frozenset({"language", "task", "timestamps", "prompt"})
TASKS = ("transcribe", "translate")

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
    """

    start: int | None
    multilingual: bool
    language: str | None
    task: str
    previous: int
    first_timestamp: int | None


class WhisperProcessor(Processor):
    """Audio of one window to features; language, task, timestamps and earlier text to decoder tokens."""

    media = "audio"

    def __init__(self, tokenizer: Any, extractor: WhisperFeatureExtractor, prompt: Prompt) -> None:
        self.tokenizer = tokenizer
        self.extractor = extractor
        self.prompt = prompt
        self.language = None if prompt.multilingual else "en"

    def source_ids(self, text: str) -> list[int]:
        raise RequestError(f"the encoder takes audio, not text; give multi_modal_data with audio beside {text!r}")

    def item(self, source: object) -> EncoderItem:
        """One window of audio, padded with silence; MediaError where it is longer than the window."""
        rate, window = self.extractor.sampling_rate, self.extractor.n_samples
        samples = decode(cast(Audio, source), rate, WINDOWS * window)
        if len(samples) > window:
            raise MediaError(
                f"audio of {len(samples) / rate:.9g} s is longer than the model's {window / rate:g} s and is not "
                f"transcribed in one go yet; cut it into pieces of at most {window / rate:g} s"
            )
        features = self.extractor(samples, sampling_rate=rate, return_tensors="np")["input_features"][0]
        rows = features.shape[1] // 2
        return EncoderItem(features.astype(np.float32), rows=rows, cost=rows)

    def decoder_ids(self, prompt: str | Sequence[int] | None, options: Mapping[str, object]) -> tuple[int, ...]:
        """As in Processor. options: language ("en", "english"), task, timestamps (bool), prompt (earlier text)."""
        given = {name: value for name, value in options.items() if value is not None}
        if unknown := given.keys() - OPTIONS:
            raise RequestError(f"unknown option {', '.join(sorted(unknown))}; known: {', '.join(sorted(OPTIONS))}")
        if not prompt:
            return (*self._previous(given.get("prompt")), self._start(), *self._directions(given))
        if given:
            raise RequestError(f"a decoder prompt already says what {', '.join(sorted(given))} would; give one")
        ids = self._ids(prompt) if isinstance(prompt, str) else tuple(prompt)
        return ids if self.prompt.start in ids else (self._start(), *ids)

    def rules(self, start: Sequence[int], options: Mapping[str, object]) -> tuple[RuleSpec, ...]:
        if not options.get("timestamps"):
            return ()
        ids = self._token("<|notimestamps|>"), self._loaded().eos_token_id
        return (RuleSpec(Timestamps.name, (len(start), *ids, self.prompt.first_timestamp)),)

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
            raise RequestError(f"timestamps {timestamps!r}: give true or false")
        tail = () if timestamps else (self._token("<|notimestamps|>"),)
        language = options.get("language", self.prompt.language)
        task = options.get("task", self.prompt.task)
        if task not in TASKS:
            raise RequestError(f"task {task!r} is unknown; give {' or '.join(TASKS)}")
        if self.prompt.multilingual:
            return (self._language(language), self._token(f"<|{task}|>"), *tail)
        if language is not None and _code(language) != "en":
            raise RequestError(f"language {language!r}: this model is English-only; leave language out")
        if task != "transcribe":
            raise RequestError(f"task {task!r}: this model is English-only and can only transcribe")
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
            raise RequestError(f"language {language!r} is unknown to this model; give a code such as 'en'") from None

    def _previous(self, text: object) -> tuple[int, ...]:
        """Earlier text as context, its end where it is too long."""
        if not text:
            return ()
        ids = self._ids(f" {str(text).strip()}")
        if any(token >= self.tokenizer.eos_token_id for token in ids):
            raise RequestError(f"prompt {text!r} holds a special token; give plain text")
        return (self._token("<|startofprev|>"), *ids[-self.prompt.previous :])

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


def _code(language: object) -> str:
    """A language's code from its code, its English name or its token."""
    name = str(language).lower().removeprefix("<|").removesuffix("|>")
    code: str = TO_LANGUAGE_CODE.get(name, name)
    return code
