"""The real checkpoints: transformers loads them and they say what they were trained to say."""

import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq, AutoProcessor, AutoTokenizer

import checkpoints
from checkpoints.convert.marian import _PlainUnpickler
from transduce.media.audio import decode

SAMPLES = Path(__file__).parents[2] / "samples"
CLIP = SAMPLES / "sense_and_sensibility_01_austen_64kb-0930.wav"


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("bart-g2p", "transformer", "tɹænsfˈɔɹməɹ"),
        ("bart-g2p", "checkpoint", "ʧˈɛkpˌYnt"),
        ("annalog-marian", "CC(=O)Oc1ccccc1C(=O)O", "CC(=O)Oc1ccccc1C(=O)O"),
        ("annalog-marian", "c1ccccc1CN", "c1ccccc1CN1CCCC1"),
        (
            "flan-t5-small-titler",
            "summarize agent step: Searched the web for flights from Berlin to Lisbon and compared prices",
            "Search for flights from Berlin to Lisbon",
        ),
    ],
)
def test_text_checkpoints_answer(name: str, text: str, answer: str) -> None:
    folder = checkpoints.path(name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    ids = tokenizer(text, return_tensors="pt").input_ids
    assert tokenizer.decode(model.generate(ids, max_length=60)[0], skip_special_tokens=True) == answer


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("whisper-tiny.en", " He might even have been made amiable himself."),
        pytest.param("whisper-base", " He might even have been made amiable himself.", marks=pytest.mark.long),
    ],
)
def test_speech_checkpoints_answer(name: str, answer: str) -> None:
    folder = checkpoints.path(name)
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForSpeechSeq2Seq.from_pretrained(folder, dtype=torch.float32)
    features = processor(decode(CLIP, 16_000), sampling_rate=16_000, return_tensors="pt").input_features
    assert processor.batch_decode(model.generate(features), skip_special_tokens=True) == [answer]


@pytest.mark.parametrize("name", ["whisper-tiny.en", pytest.param("whisper-base", marks=pytest.mark.long)])
def test_whisper_timestamps_are_text_tokens_that_end_the_vocabulary(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoints.path(name))
    vocabulary = tokenizer.get_vocab()
    first, last = vocabulary["<|0.00|>"], vocabulary["<|30.00|>"]
    assert (last - first, last) == (1500, len(tokenizer) - 1)
    assert first - 1 == vocabulary["<|notimestamps|>"]
    assert not {first, last} & set(tokenizer.all_special_ids)


def test_no_pickle_runs_code() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"refused to load builtins\.print"):
        _PlainUnpickler(io.BytesIO(pickle.dumps(print))).load()


def test_a_checkpoint_that_is_there_costs_no_import_of_torch() -> None:
    checkpoints.path("bart-g2p")
    program = "import checkpoints, sys; checkpoints.path('bart-g2p'); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=SAMPLES.parent)
