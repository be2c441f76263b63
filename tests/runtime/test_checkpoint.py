"""Finding a checkpoint: what a folder becomes, and what each unusable one is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from transduce.config import EngineConfig, LoadFormat
from transduce.errors import CheckpointError
from transduce.runtime.checkpoint import Checkpoint, open_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


pytestmark = pytest.mark.usefixtures("no_network")


def fill(folder: Path, **files: Any) -> Path:
    """Write files, `__` standing for a dot; what is no string is written as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def opened(folder: Path | str, load_format: LoadFormat = "auto") -> Checkpoint:
    return open_checkpoint(EngineConfig(model=str(folder), load_format=load_format))


def refused(folder: Path | str, load_format: LoadFormat = "auto") -> str:
    with pytest.raises(CheckpointError) as caught:
        opened(folder, load_format)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_whole_folder(tmp_path: Path) -> None:
    fill(tmp_path, config__json={"model_type": "bart", "d_model": 8}, model__safetensors="", pytorch_model__bin="")
    checkpoint = opened(tmp_path)
    assert checkpoint.folder == tmp_path
    assert checkpoint.config == {"model_type": "bart", "d_model": 8}
    assert checkpoint.generation is None
    assert checkpoint.files == (tmp_path / "model.safetensors",)
    assert checkpoint.model_type == "bart"


def test_generation_config_is_kept_apart(tmp_path: Path) -> None:
    fill(tmp_path, config__json={"num_beams": 4}, generation_config__json={"num_beams": 2}, model__safetensors="")
    checkpoint = opened(tmp_path)
    assert checkpoint.generation == {"num_beams": 2}
    assert checkpoint.config == {"num_beams": 4}


@pytest.mark.parametrize(
    ("load_format", "name"),
    [("auto", "model.safetensors"), ("safetensors", "model.safetensors"), ("pt", "pytorch_model.bin")],
)
def test_load_format_chooses_the_file(tmp_path: Path, load_format: LoadFormat, name: str) -> None:
    fill(tmp_path, config__json={}, model__safetensors="", pytorch_model__bin="")
    assert opened(tmp_path, load_format).files == (tmp_path / name,)


def test_dummy_needs_a_config_alone(tmp_path: Path) -> None:
    assert opened(fill(tmp_path, config__json={}), "dummy").files == ()


def test_forced_format_that_is_not_there(tmp_path: Path) -> None:
    fill(tmp_path, config__json={}, pytorch_model__bin="")
    assert refused(tmp_path, "safetensors").endswith(
        "has no model.safetensors, but it has pytorch_model.bin: use load_format='auto'"
    )


def test_shards_in_order(tmp_path: Path) -> None:
    index = {"weight_map": {"b": "model-2.safetensors", "a": "model-1.safetensors", "c": "model-2.safetensors"}}
    fill(tmp_path, config__json={}, model__safetensors__index__json=index)
    (tmp_path / "model-1.safetensors").touch()
    assert refused(tmp_path).endswith(
        "has 1 of 2 shards: model-2.safetensors of model.safetensors.index.json missing; copy or download the rest"
    )
    (tmp_path / "model-2.safetensors").touch()
    assert [file.name for file in opened(tmp_path).files] == ["model-1.safetensors", "model-2.safetensors"]


def test_index_without_a_map(tmp_path: Path) -> None:
    fill(tmp_path, config__json={}, model__safetensors__index__json={"metadata": {}})
    assert "model.safetensors.index.json has no weight_map" in refused(tmp_path)


@pytest.mark.parametrize(("text", "reason"), [("{", "line 1"), ("[1]", "holds a JSON list"), ("\ud800", "")])
def test_config_that_is_no_object(tmp_path: Path, text: str, reason: str) -> None:
    fill(tmp_path, model__safetensors="")
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogatepass"))
    message = refused(tmp_path)
    assert str(tmp_path / "config.json") in message
    assert reason in message
    assert message.endswith("save or download it again")


def test_config_without_model_type(tmp_path: Path) -> None:
    fill(tmp_path, config__json={}, model__safetensors="")
    with pytest.raises(CheckpointError, match=r'config\.json has model_type None: add .* "model_type": "bart"'):
        _ = opened(tmp_path).model_type


def test_adapter_alone(tmp_path: Path) -> None:
    fill(tmp_path, adapter_config__json={"base_model_name_or_path": "facebook/bart-base"})
    message = refused(tmp_path)
    assert "no config.json: it holds only an adapter of 'facebook/bart-base'" in message
    assert "merge_and_unload()" in message
    assert "only an adapter" in refused(fill(tmp_path, config__json={}))


def test_trainer_output(tmp_path: Path) -> None:
    for step in ("checkpoint-500", "checkpoint-1500", "checkpoint-best"):
        (tmp_path / step).mkdir()
    newest = str(tmp_path / "checkpoint-1500")
    assert refused(tmp_path).endswith(f"has no config.json: give one of its checkpoints; the newest is {newest!r}")
    fill(tmp_path / "checkpoint-500", config__json={}, training_args__bin="", optimizer__pt="", model__safetensors="")
    assert opened(tmp_path / "checkpoint-500").files == (tmp_path / "checkpoint-500" / "model.safetensors",)


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("x.Q4.gguf", "GGUF"),
        ("decoder_model.onnx", "ONNX"),
        ("tf_model.h5", "TensorFlow"),
        ("flax_model.msgpack", "Flax"),
    ],
)
def test_weights_of_another_engine(tmp_path: Path, name: str, engine: str) -> None:
    fill(tmp_path, config__json={})
    (tmp_path / name).touch()
    assert refused(tmp_path).endswith(
        f"has no model.safetensors or pytorch_model.bin or model.bin: {name} looks like {engine}'s format; "
        "give the transformers folder it was made from"
    )


def test_an_old_ctranslate2_folder(tmp_path: Path) -> None:
    fill(tmp_path, model__bin="")
    assert refused(tmp_path).endswith(
        "has no config.json: model.bin looks like CTranslate2's format; give the transformers folder it was made from"
    )


def test_what_is_there_instead_is_listed(tmp_path: Path) -> None:
    assert "has no config.json: it is empty; give a folder that save_pretrained() wrote" in refused(tmp_path)
    fill(tmp_path, config__json={}, training_args__bin="", **{f"z{n}": "" for n in range(9)})
    message = refused(tmp_path)
    assert "it holds config.json, training_args.bin, z0, z1, z2, z3, z4, z5 and 3 more; give" in message


def test_revision_follows_the_weights(tmp_path: Path) -> None:
    fill(tmp_path, config__json={}, model__safetensors="a")
    first = opened(tmp_path).revision
    assert opened(tmp_path).revision == first
    fill(tmp_path, model__safetensors="ab")
    assert opened(tmp_path).revision != first


def test_revision_of_a_snapshot_is_its_commit(tmp_path: Path) -> None:
    snapshot = fill(tmp_path / "snapshots" / COMMIT, config__json={}, model__safetensors="a")
    assert opened(snapshot).revision == COMMIT
    named = fill(tmp_path / "snapshots" / "mine", config__json={}, model__safetensors="a")
    assert opened(named).revision != "mine"


@pytest.mark.parametrize("shard", [None, ["model-1.safetensors"], 1])
def test_an_index_that_names_no_file_is_refused(shard: object, tmp_path: Path) -> None:
    fill(tmp_path, config__json={}, model__safetensors__index__json={"weight_map": {"a": "model-1", "b": shard}})
    assert f"has {shard!r} as the file of b" in refused(tmp_path)


def test_a_bottomless_config_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, config__json="[" * 100_000, model__safetensors="")
    assert "nested too deep" in refused(tmp_path)


@pytest.mark.parametrize("named", [5, [["x"]], "BartModel", {"a": 1}])
def test_architectures_are_a_list_of_names(named: object, tmp_path: Path) -> None:
    fill(tmp_path, config__json={"architectures": named}, model__safetensors="")
    with pytest.raises(CheckpointError, match=r"architectures .*: give a list of names"):
        _ = opened(tmp_path).architectures


def test_architectures_may_be_left_out(tmp_path: Path) -> None:
    fill(tmp_path, config__json={"architectures": None}, model__safetensors="")
    assert opened(tmp_path).architectures == ()
