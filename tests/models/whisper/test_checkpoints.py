"""The Whispers that people have: other sizes, distilled ones, old fine-tunes, beside transformers' generate()."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import WhisperForConditionalGeneration

from tests.folders import whisper_folder, with_generation, without_generation
from tests.offline import load, tokens
from tests.test_transcribe import CLIPS, features
from transduce import SamplingParams

Change = Callable[[Path], object]

FRENCH = "<|startoftranscript|><|fr|><|transcribe|><|notimestamps|>"
MULTILINGUAL = {"vocab_size": 51865}
"""Which says that it is, to those that are not told; its tokenizer has names for few of them."""


def ids(folder: Path, text: str = FRENCH) -> list[int]:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    named = {token["content"]: token["id"] for token in vocabulary}
    return [named[f"<|{name}|>"] for name in text.strip("<|>").split("|><|")]


def forced(folder: Path) -> dict[str, list[list[int]]]:
    return {"forced_decoder_ids": [[place, token] for place, token in enumerate(ids(folder))][1:]}


def older(folder: Path) -> None:
    """A fine-tune from before languages had names in generation_config.json."""
    without_generation(folder, "is_multilingual", "lang_to_id", "task_to_id", "alignment_heads")
    with_generation(folder, **forced(folder))


def oldest(folder: Path) -> None:
    """One from before there was that file."""
    file = folder / "config.json"
    fields = json.loads((folder / "generation_config.json").read_text())
    kept = {
        name: fields[name] for name in ("suppress_tokens", "begin_suppress_tokens", "max_length", "repetition_penalty")
    }
    file.write_text(json.dumps(json.loads(file.read_text()) | kept | forced(folder)))
    (folder / "generation_config.json").unlink()


def half_old(folder: Path) -> None:
    with_generation(folder, **forced(folder))


def halved(folder: Path) -> None:
    """Merged with an adapter, in float16, in shards, and without the head, which is the table of tokens."""
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float16)
    (folder / "model.safetensors").unlink()
    said = (folder / "generation_config.json").read_text()
    model.save_pretrained(folder, max_shard_size="60KB")
    assert len([*folder.glob("model-*.safetensors")]) > 1
    (folder / "generation_config.json").write_text(said)


def nothing(folder: Path) -> None:
    pass


CHECKPOINTS: dict[str, tuple[dict[str, int], Change]] = {
    "large-v3": ({"num_mel_bins": 128, "vocab_size": 51866}, nothing),
    "turbo": ({"num_mel_bins": 128, "encoder_layers": 5, "decoder_layers": 1}, nothing),
    "distilled": (
        {"encoder_layers": 4, "decoder_layers": 1},
        lambda folder: with_generation(folder, alignment_heads=[[9, 1]]),
    ),
    "float16 in shards": ({}, halved),
    "nothing suppressed": (
        {},
        lambda folder: with_generation(folder, suppress_tokens=None, begin_suppress_tokens=None),
    ),
    "empty lists": ({}, lambda folder: with_generation(folder, suppress_tokens=[], begin_suppress_tokens=[])),
    "no first timestamp": ({}, lambda folder: without_generation(folder, "max_initial_timestamp_index")),
    "a language of its own": ({}, lambda folder: with_generation(folder, language="fr", task="transcribe")),
    "an older fine-tune": (MULTILINGUAL, older),
    "an older fine-tune that knows its languages": ({}, half_old),
    "the oldest": (MULTILINGUAL, oldest),
}


TOLD = (older, oldest, half_old)
"""What has forced tokens, which count where neither language nor task is given."""


@pytest.mark.filterwarnings("ignore:.*generation_config.*")
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_transcribes_as_transformers_does(name: str, tmp_path: Path) -> None:
    sizes, change = CHECKPOINTS[name]
    folder = with_generation(whisper_folder(tmp_path, 2, **sizes), repetition_penalty=1.8)
    change(folder)
    llm, oracle = load(folder), WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    heard = llm.transcribe(list(CLIPS), sampling_params=SamplingParams(max_tokens=9))
    # Of a language that it detects, transformers names the task only if it is told one.
    task: dict[str, str] = {} if change in TOLD else {"task": "transcribe"}
    with torch.no_grad():
        made = [oracle.generate(features(folder, clip), max_new_tokens=9, **task) for clip in CLIPS]
    expected = [answer[0].tolist() for answer in made]
    prompts = [said.output.prompt_token_ids for said in heard]
    found = [answer[:9] for answer in tokens([said.output for said in heard])]
    assert found == [answer[:9] for answer in expected]
    assert len({token for answer in found for token in answer}) > 4
    if "fr" in {said.language for said in heard}:
        assert ids(folder) in prompts
