"""Moonshine's inputs: audio as it is, of any length up to what the decoder can write down, and a decoder's start."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import Wav2Vec2FeatureExtractor

from transduce.core.request import EncoderItem
from transduce.errors import CheckpointError, MediaError, RequestError
from transduce.media.audio import Audio, Excerpt, Samples, Whole, decode
from transduce.models.base import Clock
from transduce.models.config import PREPROCESSOR
from transduce.models.moonshine.model import CONVOLUTIONS, RATE, MoonshineConfig, encoder_rows
from transduce.models.text import TextProcessor

DECODED = 10
"""Of audio that is too long, so many times the longest are decoded to say how long it is."""

UNHEARD = ("no_speech",)
"""What other models say about audio, and this one does not."""

ROW = prod(stride for _, stride in CONVOLUTIONS)
"""Samples from one encoder row to the next."""


def feature_extractor(folder: Path) -> Wav2Vec2FeatureExtractor:
    """The checkpoint's own, or Moonshine's usual one, which takes samples as they are."""
    if not (folder / PREPROCESSOR).exists():
        return Wav2Vec2FeatureExtractor(do_normalize=False)
    extractor = Wav2Vec2FeatureExtractor.from_pretrained(folder)
    if (extractor.feature_size, extractor.sampling_rate) != (1, RATE):
        raise CheckpointError(
            f"{PREPROCESSOR} makes {extractor.feature_size} features at {extractor.sampling_rate} Hz, Moonshine "
            f"takes samples at {RATE} Hz"
        )
    return extractor


class MoonshineProcessor(TextProcessor):
    """Audio to samples; decoder prompts as they are. Nothing is asked of the model but to write down English."""

    media = "audio"
    language = "en"

    def __init__(
        self, tokenizer: Any, start: int | None, extractor: Wav2Vec2FeatureExtractor, config: MoonshineConfig
    ) -> None:
        super().__init__(tokenizer, start)
        self.extractor = extractor
        self._config = config

    @property
    def clock(self) -> Clock:
        return Clock(RATE, self._config.longest, frame=ROW, step=ROW, zero=self._config.vocab_size)

    def level(self, pieces: Iterable[Samples]) -> float:
        raise self._too_long(sum(map(len, pieces)))

    def source_ids(self, text: str) -> list[int]:
        raise RequestError(f"the encoder takes audio, not text; give multi_modal_data with audio beside {text!r}")

    def target_ids(self, text: str) -> list[int]:
        raise RequestError(f"this model's answers are not scored; leave out the target {text!r}")

    def item(self, source: object) -> EncoderItem:
        """Audio as it is. MediaError where it is longer than the model can write down, or too short for a row."""
        samples = self._samples(source)
        if len(samples) > self._config.longest:
            raise self._too_long(len(samples))
        if not (rows := encoder_rows(len(samples))):
            raise MediaError(f"audio of {len(samples) / RATE:.2g} s is too short; give 60 ms or more")
        (values,) = self.extractor(samples, sampling_rate=RATE, return_tensors="np")["input_values"]
        return EncoderItem(values.astype(np.float32), rows=rows, cost=rows)

    def decoder_ids(self, prompt: str | Sequence[int] | None, options: Mapping[str, object]) -> tuple[int, ...]:
        """As in Processor. options: language and task, of which there is one; all others are refused, if they ask."""
        asked = {name: value for name, value in options.items() if value and name not in UNHEARD}
        language, task = asked.pop("language", "en"), asked.pop("task", "transcribe")
        if str(language).lower() not in {"en", "english"}:
            raise RequestError(f"language {language!r}: this model is English-only; leave language out")
        if task != "transcribe":
            raise RequestError(f"task {task!r}: this model is English-only and can only transcribe")
        return super().decoder_ids(prompt, asked)

    def _samples(self, source: object) -> Samples:
        match source:
            case Excerpt(samples, start, stop):
                return samples[start:stop]
            case Whole(samples):
                return samples
            case _:
                return decode(cast(Audio, source), RATE, DECODED * self._config.longest)

    def _too_long(self, samples: int) -> MediaError:
        longest = self._config.longest / RATE
        return MediaError(
            f"audio of {samples / RATE:.9g} s is longer than the {longest:.3g} s that the model's "
            f"{self._config.max_position_embeddings} positions have words for; cut it at silences into shorter pieces, "
            "as vad_filter does"
        )
