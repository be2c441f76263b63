"""Speech by the offline API, on tiny Whispers as transformers saves them, beside transformers' generate()."""

import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from transformers import GenerationMixin, WhisperFeatureExtractor, WhisperForConditionalGeneration

from tests.folders import whisper_folder, with_generation
from tests.offline import load, tokens
from transduce import BeamSearchParams, Fallback, MediaError, RequestError, SamplingParams, Transcription
from transduce.core.request import EncoderItem
from transduce.media import audio
from transduce.media.audio import Samples, decode
from transduce.speech import transcriber
from transduce.speech.asked import Speech
from transduce.speech.listener import Listener

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
    beam = beams.transcribe(CLIPS[0], sampling_params=SamplingParams(temperature=0.0, max_tokens=6))
    assert beam.output.outputs[0].score is not None


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


def test_each_recording_is_told_when_it_is_done(speech: Path) -> None:
    told: dict[int, Transcription] = {}
    clips = [tone(300), b"noise", tone(500)]
    heard = load(speech).transcribe(clips, sampling_params=SamplingParams(max_tokens=4), done=told.__setitem__)
    assert [told[place] for place in range(3)] == heard


@pytest.mark.parametrize("vad_filter", [False, True])
def test_little_of_a_long_recording_is_held(vad_filter: bool, speech: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, begun, pieces = 0, 0, list[ref[Any]]()

    def stream(*arguments: Any) -> Iterator[Samples]:
        nonlocal held, begun
        begun += 1
        for piece in audio.stream(*arguments):
            pieces.append(ref(piece))
            held = max(held, sum(each() is not None for each in pieces))
            yield piece

    monkeypatch.setattr(transcriber, "stream", stream)
    clip = np.concatenate(
        [decode(path, RATE) for path in sorted((Path(__file__).parents[1] / "samples").glob("*.wav"))]
    )
    params, options = SamplingParams(max_tokens=2), Fallback(temperatures=(0.0,))
    said = load(speech, max_num_seqs=4).transcribe(
        (np.tile(clip, 3), RATE), "en", vad_filter=vad_filter, fallback=options, sampling_params=params
    )
    assert said.duration == pytest.approx(3 * len(clip) / RATE)
    assert said.duration > 30
    assert begun == (1 if vad_filter else 2)
    assert held <= 8  # a window, and a second beside it at either end


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


GREEDY = SamplingParams(temperature=0.0, max_tokens=9)


@pytest.mark.parametrize("patience", [None, 1.0])
def test_beams_are_those_of_transformers_that_end_once_enough_have(patience: float | None, speech: Path) -> None:
    llm, params = load(speech), SamplingParams(max_tokens=9)
    oracle = WhisperForConditionalGeneration.from_pretrained(speech).eval()
    heard = llm.transcribe(list(CLIPS), "fr", beam_size=3, patience=patience, sampling_params=params)
    start = torch.tensor([heard[0].output.prompt_token_ids])
    beams: dict[str, Any] = {"num_beams": 3, "early_stopping": True, "max_new_tokens": 9}
    found = [gone_on(oracle, features(speech, clip), start, **beams) for clip in CLIPS]
    assert tokens([said.output for said in heard]) == found
    assert tokens([said.output for said in llm.transcribe(list(CLIPS), "fr", sampling_params=GREEDY)]) != found


def gone_on(oracle: Any, heard: torch.Tensor, start: torch.Tensor, **options: Any) -> list[int]:
    """What follows a decoder prompt, without Whisper's own long form."""
    made = GenerationMixin.generate(oracle, heard, decoder_input_ids=start, **options)
    found: list[int] = made[0, start.shape[1] :].tolist()
    return found


@pytest.mark.parametrize("timestamps", [False, True])
def test_a_prefix_is_gone_on_with(timestamps: bool, speech: Path) -> None:
    llm, clip = load(speech), CLIPS[0]
    said = llm.transcribe(clip, "fr", timestamps=timestamps, prefix="a cab ", sampling_params=GREEDY)
    plain = llm.transcribe(clip, "fr", timestamps=timestamps, sampling_params=GREEDY)
    vocabulary = llm.get_tokenizer().get_vocab()
    begun = llm.get_tokenizer()(" a cab", add_special_tokens=False)["input_ids"]
    begun = [vocabulary["<|0.00|>"], *begun] if timestamps else begun
    mark = "<|0.00|>" if timestamps else ""
    assert said.output.prompt_token_ids == [*plain.output.prompt_token_ids, *begun]
    assert said.text == f"{mark} a cab{said.output.outputs[0].text}".strip()
    assert [token for each in said.segments for token in each.tokens][: len(begun)] == begun
    assert said.segments[0].text.startswith(" a cab")
    oracle = WhisperForConditionalGeneration.from_pretrained(speech).eval()
    if not timestamps:
        start = torch.tensor([said.output.prompt_token_ids])
        assert said.output.outputs[0].token_ids == gone_on(oracle, features(speech, clip), start, max_new_tokens=9)
    with pytest.raises(RequestError, match=r"prefix .* holds a special token"):
        llm.transcribe(clip, "fr", prefix="<|fr|>")


def test_hotwords_are_told_but_to_a_prefix(speech: Path) -> None:
    llm = load(speech)

    def told(**asked: Any) -> str:
        said = llm.transcribe(CLIPS[0], "fr", sampling_params=GREEDY, **asked)
        return "".join(llm.get_tokenizer().convert_ids_to_tokens(said.output.prompt_token_ids))

    assert told(hotwords="ab").startswith("<|startofprev|>Ġab<|startoftranscript|>")
    assert told(hotwords="ab", prompt="c", word_timestamps=True).startswith("<|startofprev|>ĠabĠc<|startoftranscript|>")
    assert told(hotwords="ab", prefix="c").endswith("<|notimestamps|>Ġc")


def test_only_parts_are_heard(speech: Path) -> None:
    llm = load(speech)
    recording = tone(300, 3.3)
    said = llm.transcribe(recording, "fr", clip_timestamps="0.5,0.9,1.5,2.75,3.1", sampling_params=GREEDY)
    assert said.error is None
    assert {0.5 <= each.start <= each.end <= 0.9 for each in said.segments if each.seek < 150} == {True}
    assert {each.seek for each in said.segments} >= {50, 150, 310}
    assert all(each.end <= 2.75 or each.start >= 3.1 for each in said.segments)
    good, bad = llm.transcribe([recording, CLIPS[0]], "fr", clip_timestamps=[2], sampling_params=GREEDY)
    assert (good.error, bad.error) == (
        None,
        "clip_timestamps has 2, and the audio is 0.90 s long; give times within it",
    )


def test_a_part_of_a_clip_is_that_part(speech: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm, heard = load(speech), list[EncoderItem]()
    processor = llm.frontend.processor
    item = processor.item

    def kept(source: object) -> EncoderItem:
        heard.append(item(source))
        return heard[-1]

    monkeypatch.setattr(processor, "item", kept)
    llm.transcribe(CLIPS[0], "fr", clip_timestamps=[0, 0.3, 0.5, 0.8], sampling_params=GREEDY)
    whole = features(speech, CLIPS[0])[0].numpy()
    assert len({each.data.tobytes() for each in heard}) == 2
    for each, start in ((heard[0], 0), (heard[-1], 50)):
        np.testing.assert_allclose(each.data[:, :30], whole[:, start : start + 30], atol=1e-5)
        assert not each.data[:, 30:].any()
    heard.clear()
    llm.transcribe(CLIPS[0], "fr", channels="separate", sampling_params=GREEDY)
    np.testing.assert_allclose(heard[0].data, whole, atol=1e-5)
    assert llm.transcribe((CLIPS[0][0][:99], RATE), "fr", channels="separate", sampling_params=GREEDY).error is None


def test_suppressed_tokens_are_the_checkpoints_and_others(speech: Path) -> None:
    llm = load(speech)
    own = list(llm.frontend.defaults.suppress_tokens)
    first = llm.transcribe(CLIPS[0], "fr", sampling_params=GREEDY).output.outputs[0].token_ids
    again = llm.transcribe(CLIPS[0], "fr", suppress_tokens=[-1, *first], sampling_params=GREEDY)
    assert not {*again.output.outputs[0].token_ids} & {*first, *own}
    params = Listener(llm.frontend, Speech(suppress_tokens=[])).params(GREEDY)
    assert params.suppress_tokens == sorted(own)  # all special
    with pytest.raises(RequestError, match="suppress_tokens has token id 9999"):
        llm.transcribe(CLIPS[0], "fr", suppress_tokens="9999")
    with pytest.raises(RequestError, match="suppress_tokens is in sampling_params too"):
        llm.transcribe(CLIPS[0], suppress_tokens="-1", sampling_params=SamplingParams(suppress_tokens=[3]))


def test_channels_are_recordings_of_their_own(speech: Path) -> None:
    llm = load(speech)
    both = np.stack([tone(300, 2.3)[0], tone(3000, 2.3)[0]])
    said = llm.transcribe((both, RATE), "fr", channels="separate", sampling_params=GREEDY)
    alone = [llm.transcribe((channel, RATE), "fr", channels="separate", sampling_params=GREEDY) for channel in both]
    assert said.duration == 2.3
    for number, expected in enumerate(alone, 1):
        mine = [each for each in said.segments if each.channel == number]
        assert [(each.start, each.end, each.tokens) for each in mine] == [
            (each.start, each.end, each.tokens) for each in expected.segments
        ]
    assert [each.start for each in said.segments] == sorted(each.start for each in said.segments)
    broken: Any = (np.stack([both[0], np.full_like(both[0], np.nan)]), RATE)
    with pytest.raises(MediaError, match="NaN or infinity"):
        llm.transcribe(broken, "fr", channels="separate")


def test_a_clip_that_cannot_be_believed_is_decoded_again(speech: Path) -> None:
    llm = load(speech)
    again = llm.transcribe(CLIPS[0], "fr", sampling_params=SamplingParams())
    assert again.segments[0].temperature > 0
    once = llm.transcribe(CLIPS[0], "fr", sampling_params=SamplingParams(temperature=0.0))
    assert (once.segments[0].temperature, once.segments[0].compression_ratio > 2.4) == (0.0, True)
