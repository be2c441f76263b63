"""Data sets: what is drawn and read, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.support import clip
from transduce.bench.datasets import RATE, Clip, DataSet, Text
from transduce.errors import ConfigError, MediaError
from transduce.media.audio import decode


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def clips(dataset: DataSet, seed: int = 0) -> list[Clip]:
    return [item for item in dataset.draw(rng(seed)) if isinstance(item, Clip)]


def test_random_texts_have_the_lengths_and_ids_that_were_asked_for() -> None:
    items = DataSet(num_prompts=20, input_len="7", output_len="3", vocab_size=9).draw(rng())
    assert all(isinstance(item, Text) for item in items)
    assert [len(item.prompt) for item in items if isinstance(item, Text)] == [7] * 20
    assert {token for item in items if isinstance(item, Text) for token in item.prompt} == {4, 5, 6, 7, 8}
    exactly = {"temperature": 0.0, "max_tokens": 3, "ignore_eos": True, "skip_special_tokens": False}
    assert all(item.fields == exactly for item in items if isinstance(item, Text))


def test_random_texts_are_new_at_each_draw_and_the_same_for_a_seed() -> None:
    dataset, sequence = DataSet(), rng()
    first, second = dataset.draw(sequence), dataset.draw(sequence)
    assert len(first) == 100
    assert first != second
    assert first == dataset.draw(rng())


def test_lines_are_prompts_or_requests(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    lines: list[Any] = ["a\u2028text", {"prompt": [4, 5], "max_tokens": 3}, {"prompt": "b"}]
    file.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n\n", encoding="utf-8")
    texts = [Text("a\u2028text"), Text([4, 5], {"max_tokens": 3}), Text("b")]
    assert DataSet(dataset_name="jsonl", dataset_path=file).draw(rng()) == texts
    assert DataSet(dataset_name="jsonl", dataset_path=file, num_prompts=5).draw(rng()) == [*texts, *texts[:2]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "has no line"),
        ("{", "prompts.jsonl:1 is no JSON"),
        ('"a"\n[1]', "prompts.jsonl:2: give a string, or an object"),
        ('{"prompt": {}}', "prompts.jsonl:1: give a string, or an object"),
        ('{"prompt": []}', "prompts.jsonl:1: give a string, or an object"),
    ],
)
def test_lines_that_are_refused(content: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(content)
    with pytest.raises(ConfigError, match=complaint):
        DataSet(dataset_name="jsonl", dataset_path=file).draw(rng())


def test_clips_differ_by_noise_alone(tmp_path: Path) -> None:
    clip(tmp_path / "a.wav", 0.5)
    clip(tmp_path / "b.wav", 0.25)
    (tmp_path / "notes.txt").write_text("no audio")
    found = clips(DataSet(dataset_name="audio", dataset_path=tmp_path, num_prompts=3))
    assert [(each.name, each.seconds) for each in found] == [("a.wav", 0.5), ("b.wav", 0.25), ("a.wav", 0.5)]
    first, _, again = (decode(each.content, RATE) for each in found)
    assert np.std(first - again) == pytest.approx(0.001 * 2**0.5, rel=0.1)
    assert np.std(first - decode(tmp_path / "a.wav", RATE)) == pytest.approx(0.001, rel=0.1)


def test_without_noise_files_are_sent_as_they_are(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.wav", 0.5)
    (found,) = clips(DataSet(dataset_name="audio", dataset_path=tmp_path, noise=0.0))
    assert found == Clip("a.wav", path.read_bytes(), 0.5)


def test_audio_that_is_missing_or_damaged(tmp_path: Path) -> None:
    dataset = DataSet(dataset_name="audio", dataset_path=tmp_path)
    with pytest.raises(ConfigError, match="has no audio file"):
        dataset.draw(rng())
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    with pytest.raises(MediaError, match=r"a\.wav"):
        dataset.draw(rng())


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"dataset_name": "sonnet"}, "give one of random, jsonl, audio"),
        ({"dataset_name": "jsonl"}, "jsonl needs the path of a file"),
        ({"dataset_path": Path("x")}, "random takes none"),
        ({"num_prompts": 0}, "give at least 1"),
    ],
)
def test_flags_that_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        DataSet(**fields)


def test_values_that_are_refused_when_drawn(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vocab_size=4"):
        DataSet(vocab_size=4).draw(rng())
    with pytest.raises(ConfigError, match="cannot read"):
        DataSet(dataset_name="jsonl", dataset_path=tmp_path).draw(rng())
