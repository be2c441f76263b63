"""Loading weights: exact values from every format, and each way a tensor can be wrong."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from transduce.config import EngineConfig, LoadFormat
from transduce.errors import CheckpointError
from transduce.layers.build import Weights
from transduce.runtime.checkpoint import open_checkpoint
from transduce.runtime.loader import CheckpointWeights, DummyWeights, open_weights

CONFIG = {"model_type": "bart", "vocab_size": 7}
TABLE = torch.arange(14.0).reshape(7, 2)
Saved = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Write a folder with the tensors given, as model.safetensors."""

    def save(**tensors: Tensor) -> Path:
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
        save_file(
            {name.replace("__", "."): tensor.clone() for name, tensor in tensors.items()},
            tmp_path / "model.safetensors",
        )
        return tmp_path

    return save


def pickled(folder: Path, state: object, **options: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    torch.save(state, folder / "pytorch_model.bin", **options)
    return folder


def canonical(name: str) -> str | None:
    return None if name.endswith("position_ids") else name.removeprefix("model.")


def weights(folder: Path, load_format: LoadFormat = "auto") -> CheckpointWeights:
    opened = open_weights(open_checkpoint(EngineConfig(model=str(folder), load_format=load_format)), canonical)
    assert isinstance(opened, CheckpointWeights)
    return opened


def refused(call: Callable[..., object], *args: object) -> str:
    with pytest.raises(CheckpointError) as caught:
        call(*args)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_safetensors(saved: Saved) -> None:
    loaded: Weights = weights(saved(model__table=TABLE))
    assert torch.equal(loaded.get("table", (7, 2)), TABLE)
    assert loaded.has("table")
    assert not loaded.has("model.table")


def test_values_are_mapped_not_read(saved: Saved) -> None:
    size = 1 << 24
    folder = saved(table=torch.ones(size))
    tensor = weights(folder).get("table", (size,))
    mapped = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [line[0].split("-") for line in mapped if line[-1] == str(folder / "model.safetensors")]
    assert any(int(low, 16) <= tensor.data_ptr() < int(high, 16) for low, high in spans)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_float_types_as_stored(saved: Saved, dtype: torch.dtype) -> None:
    tensor = weights(saved(table=TABLE.to(dtype))).get("table", (7, 2))
    assert tensor.dtype == dtype
    assert torch.equal(tensor.float(), TABLE)


def test_shards(saved: Saved) -> None:
    folder = saved(a=TABLE)
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    save_file({"b": TABLE + 1}, folder / "model-2.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    loaded = weights(folder)
    assert torch.equal(loaded.get("a", (7, 2)), TABLE)
    assert torch.equal(loaded.get("b", (7, 2)), TABLE + 1)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickled(tmp_path: Path, zipped: bool) -> None:
    state = {"model.table": torch.nn.Parameter(TABLE), "turned": TABLE.T}
    loaded = weights(pickled(tmp_path, state, _use_new_zipfile_serialization=zipped), "pt")
    table = loaded.get("table", (7, 2))
    assert torch.equal(table, TABLE)
    assert not table.requires_grad
    assert loaded.get("turned", (2, 7)).is_contiguous()


def test_pickled_shards(tmp_path: Path) -> None:
    pickled(tmp_path, {"a": TABLE}).joinpath("pytorch_model.bin").rename(tmp_path / "pytorch_model-1.bin")
    index = {"weight_map": {"a": "pytorch_model-1.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert torch.equal(weights(tmp_path).get("a", (7, 2)), TABLE)


class Command:
    """Runs a command when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    pickled(tmp_path, {"a": Command(tmp_path / "run")})
    assert "pytorch_model.bin cannot be read (not a pickle of tensors alone)" in refused(weights, tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("state", [[TABLE], {"model": {"a": TABLE}}, {"a": TABLE, 1: TABLE}, TABLE])
def test_a_pickle_of_something_else(tmp_path: Path, state: object) -> None:
    assert "cannot be read (not a state dict: tensors by name)" in refused(weights, pickled(tmp_path, state))


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [(TABLE.to_sparse(), "layout torch.sparse_coo"), (TABLE.to("meta"), "no values")],
)
def test_a_pickled_tensor_that_is_not_all_there(tmp_path: Path, tensor: Tensor, kind: str) -> None:
    message = refused(weights, pickled(tmp_path, {"a": tensor}))
    assert message.endswith(f"pytorch_model.bin has 'a' with {kind}: save a dense tensor with its values")


@pytest.mark.parametrize("content", [b"", b"\x80\x02" + bytes(40), b"PK\x03\x04", b"a\nb"])
def test_a_corrupt_pickle(tmp_path: Path, content: bytes) -> None:
    pickled(tmp_path, {}).joinpath("pytorch_model.bin").write_bytes(content)
    message = refused(weights, tmp_path)
    assert message.startswith(f"{tmp_path / 'pytorch_model.bin'} cannot be read (")
    assert message.endswith("copy or download it again")


def test_a_truncated_safetensors(saved: Saved) -> None:
    file = saved(table=TABLE) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    message = refused(weights, file.parent)
    assert message.startswith(f"{file} cannot be read (")
    assert "incomplete metadata" in message
    assert message.endswith("): copy or download it again")


def test_a_git_lfs_pointer(saved: Saved) -> None:
    folder = saved(table=TABLE)
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert refused(weights, folder).endswith("it is a git-lfs pointer, run `git lfs pull`")


def test_missing(saved: Saved) -> None:
    folder = saved(model__encoder__fc1__weight=TABLE)
    message = refused(weights(folder).get, "encoder.fc2.weight", (7, 2))
    assert message == (
        f"{str(folder)!r} has no tensor 'encoder.fc2.weight' (closest: model.encoder.fc1.weight); "
        "config.json may belong to other weights"
    )
    assert "'zzz'; config.json" in refused(weights(folder).get, "zzz", (7, 2))


def test_misshapen(saved: Saved) -> None:
    folder = saved(model__fc1=TABLE)
    assert refused(weights(folder).get, "fc1", (2, 6)) == (
        f"{str(folder)!r} has 'model.fc1' of shape [7, 2], not [2, 6]: config.json may belong to other weights"
    )
    assert "of shape [7, 2], not [14]" in refused(weights(folder).get, "fc1", (14,))


def test_a_vocabulary_resized_without_its_config(saved: Saved) -> None:
    folder = saved(shared=torch.ones(9, 2), final_logits_bias=torch.ones(1, 9))
    fix = "config.json says vocab_size 7, the weights 9; set vocab_size to 9"
    assert f"of shape [9, 2], not [7, 2]: {fix}" in refused(weights(folder).get, "shared", (7, 2))
    assert f"of shape [1, 9], not [1, 7]: {fix}" in refused(weights(folder).get, "final_logits_bias", (1, 7))


def test_integers_are_no_weights(saved: Saved) -> None:
    loaded = weights(saved(fc1=torch.ones(2, dtype=torch.int8)))
    assert "has 'fc1' in torch.int8: give a checkpoint in float32" in refused(loaded.get, "fc1", (2,))


def test_unknown_tensors(saved: Saved) -> None:
    folder = saved(used=TABLE, model__position_ids=torch.arange(3), **{f"model.extra{n}": TABLE for n in range(7)})
    loaded = weights(folder)
    loaded.get("used", (7, 2))
    assert refused(loaded.finish) == (
        f"{str(folder)!r} has 7 tensors that a bart of this config.json does not use: model.extra0, model.extra1, "
        "model.extra2, model.extra3, model.extra4 and 2 more; config.json may belong to other weights"
    )


def test_every_tensor_used_or_asked_for(saved: Saved) -> None:
    loaded = weights(saved(used=TABLE, lm_head=TABLE, model__position_ids=torch.arange(3)))
    loaded.get("used", (7, 2))
    assert loaded.has("lm_head")
    loaded.finish()


def test_two_tensors_of_one_name(saved: Saved) -> None:
    loaded = weights(saved(table=TABLE, model__table=TABLE))
    assert torch.equal(loaded.get("table", (7, 2)), TABLE)
    message = refused(weights, saved(table=TABLE, model__table=TABLE + 1))
    assert "'model.table'" in message
    assert message.endswith("which differ but are one tensor of the model: drop one")


@pytest.fixture
def dummy(tmp_path: Path) -> DummyWeights:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    opened = open_weights(open_checkpoint(EngineConfig(model=str(tmp_path), load_format="dummy")), canonical)
    assert isinstance(opened, DummyWeights)
    return opened


def test_dummy_values(dummy: Weights) -> None:
    table = dummy.get("table.weight", (300, 200))
    assert table.std().item() == pytest.approx(0.02, rel=0.02)
    assert torch.equal(table, dummy.get("table.weight", (300, 200)))
    assert not torch.equal(table, dummy.get("other.weight", (300, 200)))
    assert torch.equal(dummy.get("norm.weight", (8,)), torch.ones(8))
    assert dummy.get("norm.bias", (8,)).abs().max() < 0.2


def test_dummy_has_nothing_optional(dummy: DummyWeights) -> None:
    assert not dummy.has("final_logits_bias")
    dummy.get("used", (1,))
    dummy.finish()


def test_real_layout_round_trip(saved: Saved) -> None:
    tensors: Mapping[str, Tensor] = {f"model.layers.{n}.fc.weight": torch.full((2, 2), float(n)) for n in range(12)}
    loaded = weights(saved(**tensors))
    assert [loaded.get(f"layers.{n}.fc.weight", (2, 2))[0, 0].item() for n in range(12)] == list(range(12))
    loaded.finish()
