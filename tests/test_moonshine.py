"""Speech of any length by the offline API: Moonshine beside transformers' generate(), and what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import MoonshineForConditionalGeneration, Wav2Vec2FeatureExtractor

from tests.folders import moonshine_folder
from tests.offline import load, tokens
from transduce import LLM, CheckpointError, MediaError, RequestError, SamplingParams

RATE = 16_000
SAMPLES = Path(__file__).parents[1] / "samples"
LONGEST = 16 * RATE // 6


def noise(samples: int, seed: int = 0) -> tuple[np.ndarray[Any, np.dtype[np.float32]], int]:
    made = np.random.default_rng(seed).standard_normal(samples).astype(np.float32)
    return made / np.abs(made).max(), RATE


CLIPS = [noise(samples, seed) for seed, samples in enumerate((895, RATE, 20_001, LONGEST))]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return load(moonshine_folder(tmp_path_factory.mktemp("moonshine"), seed=0))


@pytest.mark.parametrize("normalized", [False, True])
def test_transcriptions_are_those_of_transformers(normalized: bool, tmp_path: Path) -> None:
    folder = moonshine_folder(tmp_path, seed=0, normalized=normalized)
    oracle = MoonshineForConditionalGeneration.from_pretrained(folder).eval()
    extract = Wav2Vec2FeatureExtractor.from_pretrained(folder)
    heard = load(folder).transcribe(CLIPS)
    expected = []
    for samples, rate in CLIPS:
        values = extract(samples, sampling_rate=rate, return_tensors="pt")["input_values"]
        expected.append(oracle.generate(values)[0, 1:].tolist())
    assert tokens([said.output for said in heard]) == expected
    assert len({tuple(ids) for ids in expected}) == len(CLIPS)
    assert {said.language for said in heard} == {"en"}
    assert [said.duration for said in heard] == [len(samples) / rate for samples, rate in CLIPS]


def test_a_clip_is_as_many_rows_as_it_is_long(tmp_path: Path) -> None:
    llm = load(moonshine_folder(tmp_path, seed=0), kv_cache_bytes=None, max_num_seqs=2, max_encode_tokens=60)
    llm.transcribe([CLIPS[0], CLIPS[2]])
    assert llm.engine.scheduler.counters.encoded_rows == 1 + 50


def test_speech_of_any_length_is_heard_between_silences(llm: LLM) -> None:
    said = llm.transcribe(str(SAMPLES / "sense_and_sensibility_01_austen_64kb-0870.wav"), vad_filter=True)
    times = [time for segment in said.segments for time in (segment.start, segment.end)]
    assert said.error is None
    assert len(said.segments) > 2
    assert times == sorted(times)
    assert max(segment.end - segment.start for segment in said.segments) <= LONGEST / RATE


@pytest.mark.parametrize("language", ["en", "English"])
def test_it_may_be_told_what_it_does_anyway(language: str, llm: LLM) -> None:
    assert llm.transcribe(CLIPS[1], language, "transcribe").text == llm.transcribe(CLIPS[1]).text


def test_what_the_decoder_starts_from(llm: LLM) -> None:
    audio: dict[str, Any] = {"multi_modal_data": {"audio": CLIPS[1]}}
    params = SamplingParams(max_tokens=4)
    (plain, told, ids) = llm.generate([audio, audio | {"prompt": "ab"}, audio | {"prompt_token_ids": [9]}], params)
    assert plain.prompt_token_ids == [0]
    assert told.prompt_token_ids == [0, *llm.get_tokenizer()("ab", add_special_tokens=False)["input_ids"]]
    assert ids.prompt_token_ids == [0, 9]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"language": "de"}, "'de': this model is English-only; leave language out"),
        ({"task": "translate"}, "'translate': this model is English-only and can only transcribe"),
        ({"timestamps": True}, "takes no option timestamps"),
        ({"prompt": "a cat"}, "takes no option prompt"),
        ({"word_timestamps": True}, "word_timestamps: '.*' does not tell when it hears what"),
    ],
)
def test_what_it_cannot_do_is_refused(asked: dict[str, Any], message: str, llm: LLM) -> None:
    with pytest.raises(RequestError, match=message):
        llm.transcribe(CLIPS[1], **asked)


def test_an_extractor_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = moonshine_folder(tmp_path, seed=0)
    Wav2Vec2FeatureExtractor(sampling_rate=8_000).save_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"1 features at 8000 Hz, Moonshine takes samples at 16000 Hz"):
        load(folder)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (894, r"audio of 0\.056 s is too short; give 60 ms or more"),
        (3 * RATE, r"audio of 3 s is longer than the 2\.67 s that the model's 16 positions have words for"),
    ],
)
def test_audio_of_other_lengths_is_refused(samples: int, message: str, llm: LLM) -> None:
    clip = noise(samples)
    with pytest.raises(MediaError, match=message):
        llm.transcribe(clip)
    with pytest.raises(MediaError, match=message):
        llm.generate({"multi_modal_data": {"audio": clip}})
