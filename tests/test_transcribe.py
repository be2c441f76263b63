"""Speech by the offline API, on tiny Whispers as transformers saves them, beside transformers' generate()."""

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from tests.folders import whisper_folder, with_generation
from tests.offline import load, tokens
from transduce import BeamSearchParams, MediaError, RequestError, SamplingParams, Transcription
from transduce.media import audio as media
from transduce.speech import transcription

RATE = 16_000


def tone(hertz: float, seconds: float = 0.9) -> tuple[np.ndarray[Any, np.dtype[np.float32]], int]:
    times = np.arange(int(RATE * seconds)) / RATE
    return np.sin(2 * np.pi * hertz * times).astype(np.float32), RATE


CLIPS = (tone(200), tone(900, 0.4), tone(3000), tone(5000, 0.2))


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whisper_folder(tmp_path_factory.mktemp("whisper"), seed=0)


def features(folder: Path, clip: tuple[Any, int]) -> torch.Tensor:
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    found: torch.Tensor = extractor(clip[0], sampling_rate=clip[1], return_tensors="pt")["input_features"]
    return found


def test_language_is_detected_as_transformers_does(tmp_path: Path) -> None:
    llm = load(whisper_folder(tmp_path, seed=10))
    oracle = WhisperForConditionalGeneration.from_pretrained(tmp_path).eval()
    names = {token: name.strip("<|>") for name, token in oracle.generation_config.lang_to_id.items()}
    heard = llm.transcribe(list(CLIPS), sampling_params=SamplingParams(max_tokens=1))
    start = torch.tensor([[oracle.generation_config.decoder_start_token_id]])
    with torch.no_grad():
        detected = [oracle.detect_language(features(tmp_path, clip)) for clip in CLIPS]
        logits = [oracle(features(tmp_path, clip), decoder_input_ids=start).logits[0, 0, [*names]] for clip in CLIPS]
    assert [said.language for said in heard] == [names[int(token)] for token in detected]
    likely = pytest.approx([float(each.softmax(-1).max()) for each in logits], rel=1e-4)
    assert [said.language_probability for said in heard] == likely
    assert len({said.language for said in heard}) > 1


@pytest.mark.filterwarnings("ignore:.*generation_config.*")
@pytest.mark.parametrize("task", ["transcribe", "translate"])
def test_transcriptions_are_those_of_transformers(task: str, speech: Path) -> None:
    llm = load(speech)
    oracle = WhisperForConditionalGeneration.from_pretrained(speech).eval()
    heard = llm.transcribe(list(CLIPS), "fr", task, sampling_params=SamplingParams(max_tokens=9))
    expected = [
        oracle.generate(features(speech, clip), language="fr", task=task, max_new_tokens=9)[0, :9].tolist()
        for clip in CLIPS  # of a timestamp token transformers makes a next segment, after these
    ]
    assert tokens([said.output for said in heard]) == expected
    assert len({said.text for said in heard}) > 1


def test_a_given_language_is_used(speech: Path) -> None:
    llm = load(speech)
    params = SamplingParams(max_tokens=4)
    for language in ("de", "German", "DE", "<|de|>"):
        said = llm.transcribe(CLIPS[0], language, sampling_params=params)
        assert isinstance(said, Transcription)
        assert said.language == "de"
        assert llm.get_tokenizer().convert_ids_to_tokens(said.output.prompt_token_ids)[1] == "<|de|>"
    with pytest.raises(RequestError, match="language 'xx' is unknown"):
        llm.transcribe(CLIPS[0], "xx")


def test_an_english_only_model_says_so(tmp_path: Path) -> None:
    llm = load(with_generation(whisper_folder(tmp_path, seed=0), is_multilingual=False, lang_to_id=None))
    said = llm.transcribe(CLIPS[0], sampling_params=SamplingParams(max_tokens=4))
    assert (said.error, said.language) == (None, "en")
    assert llm.transcribe(CLIPS[0], "English", sampling_params=SamplingParams(max_tokens=4)).language == "en"
    names = llm.get_tokenizer().convert_ids_to_tokens(said.output.prompt_token_ids)
    assert names == ["<|startoftranscript|>", "<|notimestamps|>"]


def test_swapped_samples_and_rate_are_one_refusal(speech: Path) -> None:
    (samples, rate), llm = CLIPS[0], load(speech)
    swapped: Any = (rate, samples)
    with pytest.raises(MediaError, match=r"\(rate, samples\)"):
        llm.generate(swapped)
    with pytest.raises(MediaError, match=r"\(rate, samples\)"):
        llm.transcribe(swapped, "fr")
    wrong: Any = {"temperature": 0}
    with pytest.raises(RequestError, match="of type dict: use SamplingParams"):
        llm.transcribe(CLIPS[0], sampling_params=wrong)


def test_a_checkpoint_that_asks_for_beams_transcribes_greedily_when_told(speech: Path, tmp_path: Path) -> None:
    beams = load(with_generation(whisper_folder(tmp_path, seed=0), num_beams=4))
    greedy = BeamSearchParams(beam_width=1, max_tokens=6)
    heard = beams.transcribe(CLIPS[0], sampling_params=greedy)
    expected = load(speech).transcribe(CLIPS[0], sampling_params=greedy)
    assert (heard.language, heard.text) == (expected.language, expected.text)
    assert beams.transcribe(CLIPS[0]).output.outputs[0].score is not None


def test_every_form_of_a_speech_prompt_is_the_same_request(tmp_path: Path) -> None:
    llm = load(with_generation(whisper_folder(tmp_path, seed=0), language="fr"))
    (samples, rate), path = CLIPS[0], tmp_path / "clip.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    with wave.open(str(path), "rb") as file:
        stored = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    start = "<|startoftranscript|><|fr|><|transcribe|><|notimestamps|>"
    media = [{"audio": form} for form in ((stored, rate), path, str(path), path.read_bytes())]
    prompts: list[Any] = [(stored, rate), path, path.read_bytes(), *({"multi_modal_data": each} for each in media)]
    prompts += [{"prompt": start, "multi_modal_data": each} for each in media]
    for placeholder in ({"prompt": ""}, {"prompt_token_ids": [0]}, {}):
        prompts.append({"encoder_prompt": {**placeholder, "multi_modal_data": media[0]}, "decoder_prompt": start})
    params = SamplingParams(max_tokens=6)
    outputs = llm.generate(prompts, params)
    (alone,) = llm.generate((stored, np.int64(rate)), params)  # type: ignore[arg-type]  # as libraries return rates
    names = llm.get_tokenizer().convert_ids_to_tokens(alone.prompt_token_ids)
    assert "".join(names) == start
    assert [(output.error, output.prompt_token_ids) for output in outputs] == [(None, alone.prompt_token_ids)] * 14
    assert tokens(outputs) == tokens([alone]) * 14
    (bare,) = llm.generate({"prompt": "<|startoftranscript|>", "multi_modal_data": media[0]}, params)
    assert bare.prompt_token_ids == alone.prompt_token_ids[:1]


def test_a_clip_is_encoded_once_for_detection_and_transcription(speech: Path) -> None:
    llm = load(speech)
    llm.transcribe(list(CLIPS), sampling_params=SamplingParams(max_tokens=2))
    assert llm.engine.scheduler.counters.encoded_rows == len(CLIPS) * 50


def test_recordings_are_decoded_while_there_is_room_and_told_when_done(
    speech: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def decode(*arguments: Any) -> Any:
        events.append("decoded")
        return media.decode(*arguments)

    monkeypatch.setattr(transcription, "decode", decode)
    monkeypatch.setattr(transcription, "HELD", 1.0)
    told: dict[int, Transcription] = {}

    def done(place: int, said: Transcription) -> None:
        events.append("done")
        told[place] = said

    clips = [tone(300), b"noise", tone(500), tone(700)]
    heard = load(speech).transcribe(clips, sampling_params=SamplingParams(max_tokens=4), done=done)
    assert [told[place] for place in range(4)] == heard
    held = [events[:at].count("decoded") - events[:at].count("done") for at in range(len(events))]
    assert max(held) == 2


def test_bad_clips_have_their_own_errors(speech: Path) -> None:
    llm = load(speech)
    params = SamplingParams(max_tokens=4)
    good, noise = llm.transcribe([CLIPS[0], b"noise"], sampling_params=params)
    assert good.error is None
    assert good.text
    assert "cannot read audio of 5 bytes" in (noise.error or "")
    with pytest.raises(MediaError, match="cannot read audio"):
        llm.transcribe(b"noise")


@pytest.mark.filterwarnings("ignore:.*generation_config.*")
@pytest.mark.parametrize("first", [None, 3])
def test_timestamps_are_those_of_transformers(first: int | None, tmp_path: Path) -> None:
    llm = load(with_generation(whisper_folder(tmp_path, 2), max_initial_timestamp_index=first, repetition_penalty=1.8))
    oracle = WhisperForConditionalGeneration.from_pretrained(tmp_path).eval()
    params = SamplingParams(max_tokens=20)
    heard = llm.transcribe(list(CLIPS), "fr", timestamps=True, sampling_params=params)
    expected = []
    for clip in CLIPS:
        ask = {"language": "fr", "task": "transcribe", "max_new_tokens": 20, "return_timestamps": True}
        made = oracle.generate(features(tmp_path, clip), **ask, return_segments=True)
        window = made["segments"][0][0]["result"].tolist()  # all of the window's tokens, the prompt's in front
        expected.append(window[len(heard[0].output.prompt_token_ids) :])
    assert tokens([said.output for said in heard]) == expected
    zero = llm.get_tokenizer().convert_tokens_to_ids("<|0.00|>")
    assert any(ids[at] == ids[at + 1] >= zero for ids in expected for at in range(len(ids) - 1))  # a pair
    assert len({said.text for said in heard}) > 1


def test_timestamps_are_text(speech: Path) -> None:
    llm = load(speech)
    vocabulary = llm.get_tokenizer().get_vocab()
    stamps = [f"<|{step * 0.02:.2f}|>" for step in range(51)]
    among = [vocabulary[name] for name in (*stamps, "a", "b", "<|notimestamps|>")]
    params = SamplingParams(max_tokens=30, allowed_token_ids=among)
    said = llm.transcribe(CLIPS[0], "en", timestamps=True, sampling_params=params)
    named = llm.get_tokenizer().convert_ids_to_tokens(said.output.outputs[0].token_ids)
    assert set(named) & set(stamps)
    assert "<|notimestamps|>" not in named
    assert said.text == "".join(named)
