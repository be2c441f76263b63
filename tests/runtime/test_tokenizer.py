"""Loading a tokenizer: from the folder alone, in silence; without its files, an error that names them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from transduce.config import EngineConfig
from transduce.errors import CheckpointError
from transduce.runtime.checkpoint import open_checkpoint
from transduce.runtime.tokenizer import load_tokenizer

WAY_OUT = "give a folder with one as tokenizer=... or --tokenizer, or serve token ids with skip_tokenizer_init=True"


pytestmark = pytest.mark.usefixtures("no_network")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model"}')
    return tmp_path


def add_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "hello": 1, "world": 2}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def load(folder: Path, **options: Any) -> Any:
    config = EngineConfig(model=str(folder), load_format="dummy", **options)
    return load_tokenizer(open_checkpoint(config), config)


def refused(folder: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(folder, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_from_the_folder_in_silence(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    add_tokenizer(folder)
    assert load(folder)("hello world").input_ids == [1, 2]
    assert capfd.readouterr() == ("", "")


def test_from_another_folder(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    add_tokenizer(other)
    assert load(folder, tokenizer=str(other))("world").input_ids == [2]


def test_skipped(folder: Path) -> None:
    assert load(folder, skip_tokenizer_init=True) is None


def test_no_files(folder: Path) -> None:
    assert refused(folder) == f"{str(folder)!r} has no tokenizer.json: {WAY_OUT}"


def test_settings_alone_are_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    assert "has no tokenizer.json" in refused(folder)


@pytest.mark.parametrize(
    ("there", "missing"),
    [(["vocab.json"], "merges.txt"), (["vocab.json", "target.spm"], "source.spm"), (["merges.txt"], "vocab.json")],
)
def test_half_of_a_vocabulary(folder: Path, there: list[str], missing: str) -> None:
    for name in there:
        (folder / name).write_text("{}")
    assert refused(folder) == f"{str(folder)!r} has no {missing}: {WAY_OUT}"


def test_bytes_need_no_vocabulary(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    assert load(folder)("ab").input_ids == [100, 101, 1]


def test_byte_pairs_without_a_tokenizer_json(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "bart"}')
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "ab": 6}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    assert load(folder)("ab").input_ids == [0, 6, 2]


def test_a_broken_file(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{nope")
    message = refused(folder)
    assert message.startswith(f"the tokenizer in {str(folder)!r} cannot be loaded (JSONDecodeError: ")
    assert message.endswith(f": {WAY_OUT}")


def test_code_that_is_not_trusted(folder: Path) -> None:
    add_tokenizer(folder)
    settings = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert "trust_remote_code" in refused(folder)
