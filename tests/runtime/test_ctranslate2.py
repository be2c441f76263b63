"""CTranslate2's folders, converted by CTranslate2 itself: the weights, the transcriptions, and what is refused."""

import json
import shutil
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ctranslate2.converters import TransformersConverter
from safetensors.torch import load_file
from torch import Tensor

from tests.folders import LANGUAGES, whisper_folder, without_generation
from tests.offline import load, tokens
from tests.test_transcribe import CLIPS
from transduce import CheckpointError, SamplingParams
from transduce.config import EngineConfig
from transduce.models.base import Foreign
from transduce.models.whisper.ctranslate2 import convert as convert_whisper
from transduce.runtime import ctranslate2
from transduce.runtime.checkpoint import open_checkpoint
from transduce.runtime.quantize import quantize

COPIED = ["tokenizer.json", "preprocessor_config.json"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English-only, as CTranslate2 takes every model of so few tokens for."""
    folder = whisper_folder(tmp_path_factory.mktemp("whisper"), seed=0)
    return without_generation(folder, "is_multilingual", "lang_to_id")


@pytest.fixture(scope="module")
def floats(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converted(original, tmp_path_factory.mktemp("ctranslate2") / "floats", None)


def converted(original: Path, out: Path, quantization: str | None) -> Path:
    TransformersConverter(str(original), copy_files=COPIED).convert(str(out), quantization=quantization)
    return out


def said(folder: Path, **options: object) -> list[list[int]]:
    params = SamplingParams(max_tokens=12, repetition_penalty=1.3)
    return tokens([heard.output for heard in load(folder, **options).transcribe(list(CLIPS), sampling_params=params)])


def test_a_folder_answers_as_the_one_it_was_made_from(original: Path, floats: Path) -> None:
    answers = said(floats)
    assert answers == said(original)
    assert len({token for answer in answers for token in answer}) > 3


@pytest.mark.parametrize(
    ("quantization", "tolerance"),
    [("float16", 2**-11), ("bfloat16", 2**-8), ("int16", 2**-8), ("int8", 1 / 254), ("int8_bfloat16", 1 / 254)],
)
def test_weights_are_those_of_the_original(quantization: str, tolerance: float, original: Path, tmp_path: Path) -> None:
    folder = converted(original, tmp_path / "out", quantization)
    made, expected = ctranslate2.convert(folder).tensors, load_file(original / "model.safetensors")
    assert made.keys() - {name for name in made if name.endswith("_scale")} == expected.keys()
    for name, tensor in expected.items():
        largest = tensor.abs().max()
        assert (value(made, name) - tensor).abs().max() <= largest * tolerance * 1.01, name
    assert said(folder)


def value(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    scale = tensors.get(f"{name}_scale")
    return tensors[name].float() if scale is None else tensors[name] * scale[:, None]


def test_integers_stay_as_they_are(original: Path, tmp_path: Path) -> None:
    folder = converted(original, tmp_path / "out", "int8")
    checkpoint, tensors = open_checkpoint(EngineConfig(model=str(folder))), ctranslate2.convert(folder).tensors
    assert checkpoint.config["quantization_config"]["quant_method"] == "int8"
    kept = {name for name, tensor in tensors.items() if tensor.dtype == torch.int8}
    assert kept == {name.removesuffix("_scale") for name in tensors if name.endswith("_scale")}
    assert "model.decoder.layers.1.encoder_attn.v_proj.weight" in kept
    assert tensors["model.encoder.conv1.weight"].dtype == torch.float32


def test_it_is_quantized_to_a_folder_of_transformers(floats: Path, tmp_path: Path) -> None:
    quantize(EngineConfig(model=str(floats), quantization="int8"), tmp_path / "out")
    assert said(tmp_path / "out") == said(floats, quantization="int8")


def test_a_multilingual_model_names_its_languages(floats: Path) -> None:
    reader = ctranslate2._Reader(floats / "model.bin")
    found = Foreign(json.loads((floats / "config.json").read_text()), names(floats), reader.variables())
    ids = {name: index for index, name in enumerate(found.vocabulary)}
    table = {"decoder/embeddings/weight": torch.zeros(51865, 24)}
    table["decoder/projection/weight"] = table["decoder/embeddings/weight"]
    many = replace(found, variables={**found.variables, **table}, config={})
    expected = {f"<|{code}|>": ids[f"<|{code}|>"] for code in LANGUAGES}
    assert convert_whisper(many).generation["lang_to_id"] == expected
    some = replace(many, config={"lang_ids": [ids["<|de|>"]]})
    assert convert_whisper(some).generation["lang_to_id"] == {"<|de|>": ids["<|de|>"]}


def names(folder: Path) -> list[str]:
    vocabulary: list[str] = json.loads((folder / "vocabulary.json").read_text())
    return vocabulary


def test_the_vocabulary_of_older_folders(floats: Path, tmp_path: Path) -> None:
    shutil.copytree(floats, tmp_path / "old")
    (tmp_path / "old" / "vocabulary.txt").write_text("\n".join(names(floats)))
    (tmp_path / "old" / "vocabulary.json").unlink()
    assert said(tmp_path / "old") == said(floats)


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(EngineConfig(model=str(folder)))
    return str(caught.value)


def head(version: int, spec: str, revision: int) -> bytes:
    return struct.pack("<IH", version, len(spec) + 1) + spec.encode() + b"\0" + struct.pack("<II", revision, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read (it is empty): copy or download it again"),
        (b"PK\3\4" * 9, "its first number is 67324752, not the 6 of CTranslate2's files"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a git-lfs pointer, run `git lfs pull`"),
        (head(6, "TransformerSpec", 7), "is a TransformerSpec of CTranslate2, which is not supported: give the tra"),
        (
            head(6, "WhisperSpec", 2),
            "of revision 2, and this Transduce reads 3: convert it anew by today's CTranslate2",
        ),
        (head(6, "Whis\x07per", 3), "cannot be read (a name in it cannot be read): copy or"),
        (head(6, "WhisperSpec", 3), "it ends after 26 bytes, and goes on to 30 at least"),
        (head(6, "WhisperSpec", 3) + bytes(4), "it has no 'decoder/projection/weight'"),
    ],
)
def test_a_file_that_is_no_whisper_says_what_it_is(content: bytes, message: str, floats: Path, tmp_path: Path) -> None:
    shutil.copytree(floats, tmp_path / "out")
    (tmp_path / "out" / "model.bin").write_bytes(content)
    assert message in refused(tmp_path / "out")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_file_cut_short_is_refused(part: float, floats: Path, tmp_path: Path) -> None:
    whole = (floats / "model.bin").read_bytes()
    shutil.copytree(floats, tmp_path / "out")
    (tmp_path / "out" / "model.bin").write_bytes(whole[: int(part * len(whole))])
    assert "at least): copy or download it again" in refused(tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "has no vocabulary.json beside model.bin"), ("{}", "not a list of tokens"), ('["a"]', "no '<|startoftr")],
)
def test_a_vocabulary_is_needed(text: str | None, message: str, floats: Path, tmp_path: Path) -> None:
    shutil.copytree(floats, tmp_path / "out")
    file = tmp_path / "out" / "vocabulary.json"
    file.unlink() if text is None else file.write_text(text)
    assert message in refused(tmp_path / "out")


def test_without_a_tokenizer_there_is_a_way_out(floats: Path, tmp_path: Path) -> None:
    shutil.copytree(floats, tmp_path / "out")
    (tmp_path / "out" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json: give a folder with one as tokenizer="):
        load(tmp_path / "out")
    assert said(tmp_path / "out", tokenizer=str(floats))
