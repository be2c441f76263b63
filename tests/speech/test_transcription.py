"""Audio longer than a window by the offline API, on tiny Whispers, beside transformers' long-form generate().

Both follow openai/whisper. Where transformers does not, this package does, and the tests say so:
- a segment ends no later than its audio does;
- the second timestamp of the pair that ends a window's last segment is no part of it;
- text is measured for repetition, not token ids, so the thresholds are off here;
- after a window at a high temperature all text before it is forgotten, not only for the next window.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from tests.folders import whisper_folder, with_generation
from tests.offline import load
from transduce import Fallback, MediaError, RequestError, SamplingParams, Transcription

RATE = 16_000
WINDOW_ROWS = 50
GREEDY = SamplingParams(temperature=0.0, max_tokens=20)
CREDULOUS = Fallback(compression_ratio_threshold=None, logprob_threshold=None, no_speech_threshold=None)


def song(seconds: float, seed: int) -> tuple[npt.NDArray[np.float32], int]:
    """Notes of a quarter of a second."""
    rng, length = np.random.default_rng(seed), int(RATE * seconds)
    notes = length // (RATE // 4) + 1
    hertz, loudness = (np.repeat(rng.uniform(*span, notes), RATE // 4)[:length] for span in ((100, 6000), (0, 1)))
    return (np.sin(2 * np.pi * hertz * np.arange(length) / RATE) * loudness).astype(np.float32), RATE


SONG = song(3.33, seed=0)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = whisper_folder(tmp_path_factory.mktemp("whisper"), seed=2)
    vocabulary = load(folder).get_tokenizer().get_vocab()
    return with_generation(folder, prev_sot_token_id=vocabulary["<|startofprev|>"], repetition_penalty=1.8)


def expected(folder: Path, zero: int, condition: bool) -> list[tuple[float, float, list[int]]]:
    oracle = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    options: dict[str, Any] = {"truncation": False, "padding": "longest", "return_attention_mask": True}
    heard = extractor(SONG[0], sampling_rate=RATE, return_tensors="pt", **options)
    with torch.no_grad():
        made = oracle.generate(
            heard["input_features"],
            attention_mask=heard["attention_mask"],
            language="fr",
            task="transcribe",
            return_timestamps=True,
            return_segments=True,
            condition_on_prev_tokens=condition,
            max_new_tokens=GREEDY.max_tokens,
        )
    end = len(SONG[0]) / RATE
    segments = []
    for each in made["segments"][0]:
        tokens = each["tokens"].tolist()
        paired = len(tokens) > 2 and tokens[-2] >= zero and tokens[-1] >= zero
        start, stop = (round(min(float(each[side]), end), 2) for side in ("start", "end"))
        segments.append((start, stop, tokens[:-1] if paired else tokens))
    return segments


@pytest.mark.filterwarnings("ignore:.*generation_config.*")
@pytest.mark.parametrize("condition", [True, False])
def test_segments_are_those_of_transformers(condition: bool, speech: Path) -> None:
    llm = load(speech)
    said = llm.transcribe(
        SONG, "fr", condition_on_previous_text=condition, fallback=CREDULOUS, sampling_params=GREEDY, use_tqdm=False
    )
    zero = llm.get_tokenizer().convert_tokens_to_ids("<|0.00|>")
    found = [(round(each.start, 2), round(each.end, 2), [*each.tokens]) for each in said.segments]
    assert found == expected(speech, zero, condition)
    assert (said.error, said.duration, said.language) == (None, len(SONG[0]) / RATE, "fr")
    assert [each.id for each in said.segments] == [*range(len(said.segments))]
    assert said.text == "".join(each.text for each in said.segments).strip()
    assert len({each.seek for each in said.segments}) > 3


def test_the_measures_are_the_models(speech: Path) -> None:
    llm = load(speech)
    said = llm.transcribe(SONG, "fr", fallback=CREDULOUS, sampling_params=GREEDY, use_tqdm=False)
    oracle = WhisperForConditionalGeneration.from_pretrained(speech).eval()
    (first, *_), silence = said.segments, llm.get_tokenizer().convert_tokens_to_ids("<|nospeech|>")
    extractor = WhisperFeatureExtractor.from_pretrained(speech)
    features = extractor(SONG[0], sampling_rate=RATE, return_tensors="pt", truncation=False)["input_features"]
    with torch.no_grad():
        logits = oracle(features[..., :100], decoder_input_ids=torch.tensor([said.output.prompt_token_ids])).logits
    assert first.no_speech_prob == pytest.approx(float(logits[0, 0].softmax(-1)[silence]), rel=1e-4)
    assert first.compression_ratio > 0
    assert first.avg_logprob < 0


def test_a_window_is_encoded_once_for_all_attempts(speech: Path) -> None:
    llm = load(speech)
    doubtful = Fallback(temperatures=(0.0, 0.2, 0.8), logprob_threshold=100.0, no_speech_threshold=None)
    params = SamplingParams(max_tokens=20)
    said = llm.transcribe(SONG, fallback=doubtful, sampling_params=params, use_tqdm=False)
    cache, rows = llm.engine.scheduler.cache, llm.engine.scheduler.counters.encoded_rows
    windows = rows // WINDOW_ROWS
    assert windows >= 4
    assert (cache.queries, cache.hits) == (3 * windows + 1, 2 * windows + 1)  # and one detection
    assert {each.temperature for each in said.segments} == {0.8}
    again = llm.transcribe(SONG, fallback=doubtful, sampling_params=params, use_tqdm=False)
    assert again.segments == said.segments
    assert again.language_probability == said.language_probability


def test_clips_and_long_audio_go_side_by_side(speech: Path) -> None:
    llm = load(speech)
    recordings: list[Any] = [SONG, song(0.7, 1), b"noise", song(2.2, 2), song(1.0, 3)]
    together = llm.transcribe(recordings, "fr", sampling_params=GREEDY, use_tqdm=False)
    assert "cannot read audio of 5 bytes" in (together[2].error or "")
    for recording, said in zip(recordings, together, strict=True):
        if said.error is None:
            alone = llm.transcribe(recording, "fr", sampling_params=GREEDY, use_tqdm=False)
            assert isinstance(alone, Transcription)
            assert (alone.text, alone.segments, alone.duration) == (said.text, said.segments, said.duration)
    with pytest.raises(MediaError, match="cannot read audio"):
        llm.transcribe(b"noise", "fr")
    with pytest.raises(RequestError, match="prompt_logprobs=1: a transcription has none"):
        llm.transcribe(SONG, "fr", sampling_params=SamplingParams(prompt_logprobs=1))


def test_a_clip_is_one_segment_or_those_between_its_timestamps(speech: Path) -> None:
    llm, clip = load(speech), song(0.9, 1)
    plain = llm.transcribe(clip, "fr", sampling_params=GREEDY, use_tqdm=False)
    (segment,) = plain.segments
    assert (segment.start, segment.end, segment.text.strip()) == (0.0, 0.9, plain.text)
    marked = llm.transcribe(clip, "fr", timestamps=True, sampling_params=GREEDY, use_tqdm=False)
    assert [token for each in marked.segments for token in each.tokens] == marked.output.outputs[0].token_ids[
        : sum(len(each.tokens) for each in marked.segments)
    ]


def test_timestamps_mark_the_text_of_long_audio(speech: Path) -> None:
    llm = load(speech)
    said = llm.transcribe(SONG, "fr", timestamps=True, fallback=CREDULOUS, sampling_params=GREEDY, use_tqdm=False)
    first = next(each for each in said.segments if each.text)
    assert said.text.startswith(f"<|{first.start:.2f}|>{first.text}<|{first.end:.2f}|>")
    assert said.text.endswith("<|3.33|>")
