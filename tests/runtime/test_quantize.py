"""Quantized checkpoints: written, loaded by themselves, and each way in which one is refused."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.folders import moonshine_folder, text_folder, whisper_folder
from tests.models.cases import ALL
from tests.models.tiny import checkpoint
from tests.offline import load, tokens
from transduce import EngineConfig, SamplingParams
from transduce.errors import CheckpointError, ConfigError
from transduce.models.t5 import FAMILY
from transduce.runtime.quantize import Written, quantize

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 16}
SOURCES = [[7, 9, 11, 1], [5, 1], [30, 8, 41, 22, 17, 3, 1]]
BARE = {"skip_tokenizer_init": True}
CASES = [
    ("bart", "plain", 1),
    ("bart", "tied, but the head differs", 2),
    ("bart", "table under every name", 1),
    ("t5", "1.1", 2),
    ("t5", "table under old names", 1),
    ("marian", "sines, stored", 1),
    ("marian", "two vocabularies, untied", 3),
]


def written(model: Path, out: Path, *keep: str) -> Written:
    """With exactly these layers kept."""
    return quantize(EngineConfig(model=str(model), quantization="int8", quantization_keep=keep), out)


def tiny(folder: Path, model_type: str, name: str) -> Path:
    """A case of the families' tests as a folder without a tokenizer."""
    (case,) = [case for case in ALL if (case.model_type, case.name) == (model_type, name)]
    made = checkpoint(case)
    folder.mkdir()
    start = {"decoder_start_token_id": 2, "eos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(made.raw | start))
    save_file({key: tensor.clone().contiguous() for key, tensor in made.state.items()}, folder / "model.safetensors")
    return folder


@pytest.fixture
def bart(tmp_path: Path) -> Path:
    return text_folder(tmp_path / "bart", GENERATION)


def answers(folder: Path, **options: Any) -> list[tuple[list[int], float | None]]:
    """Tokens, and the sum of their log-probabilities, in which every bit of the logits counts."""
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=0)
    sources = [{"prompt_token_ids": source} for source in SOURCES]
    outputs = load(folder, **BARE, **options).generate(sources, params, use_tqdm=False)
    return [(output.outputs[0].token_ids, output.outputs[0].cumulative_logprob) for output in outputs]


@pytest.mark.parametrize(("model_type", "name", "tables"), CASES)
def test_it_answers_as_when_quantized_on_loading(model_type: str, name: str, tables: int, tmp_path: Path) -> None:
    model, out = tiny(tmp_path / "model", model_type, name), tmp_path / "out"
    written(model, out)
    expected = answers(model, quantization="int8", quantization_keep=())
    assert answers(out) == expected == answers(out, quantization="int8")
    assert len({logprob for _, logprob in expected}) == len(SOURCES)
    shapes = [tensor.shape for tensor in load_file(out / "model.safetensors").values() if tensor.dtype == torch.int8]
    assert sum(shape[0] in {43, 50} for shape in shapes) == tables


@pytest.mark.parametrize(("made", "language"), [(whisper_folder, "de"), (moonshine_folder, "en")])
def test_so_does_speech(made: Callable[..., Path], language: str, tmp_path: Path) -> None:
    model, out = made(tmp_path / "speech", seed=1), tmp_path / "out"
    assert written(model, out).kept == 0
    clip = (np.sin(np.arange(8_000) / 20).astype(np.float32), 16_000)
    said = [
        load(folder, **options).transcribe(clip, language).output.outputs[0].token_ids
        for folder, options in ((model, {"quantization": "int8"}), (out, {}))
    ]
    assert said[0] == said[1]
    assert said[0]


def test_layers_are_integers_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    model, out = tiny(tmp_path / "model", "t5", "1.1"), tmp_path / "out"
    state: Mapping[str, Tensor] = {name: each.half() for name, each in load_file(model / "model.safetensors").items()}
    save_file(dict(state), model / "model.safetensors")
    made = written(model, out)
    after = load_file(out / "model.safetensors")
    layers = [name for name in state if f"{name}_scale" in after]
    assert len(layers) == made.quantized == sum(state[name].dim() == 2 for name in state) - 2  # two position biases
    assert all(after[name].dtype == torch.int8 for name in layers)
    rest = set(state) - set(layers)
    assert set(after) == {*state, *(f"{name}_scale" for name in layers)}
    assert all(torch.equal(after[name], state[name]) and after[name].dtype == torch.float16 for name in rest)
    assert made.after == (out / "model.safetensors").stat().st_size < made.before


@pytest.mark.parametrize("keep", [("lm_head", "*.fc2"), ("encoder.layers.1.*",), ("shared",)])
def test_layers_may_be_kept(keep: tuple[str, ...], tmp_path: Path) -> None:
    model, out = tiny(tmp_path / "model", "t5", "1.1"), tmp_path / "out"
    made = written(model, out, *keep)
    assert made.kept > 0
    assert answers(out) == answers(model, quantization="int8", quantization_keep=keep)
    assert load(out, **BARE).config.quantization_keep == keep
    all_quantized = written(model, tmp_path / "all")
    assert all_quantized.quantized == made.quantized + made.kept
    assert made.after > all_quantized.after


@pytest.mark.parametrize(("name", "kept"), [("1.1", 1), ("1.0, tied by name", 0)])
def test_what_a_family_keeps_is_the_default(name: str, kept: int, tmp_path: Path) -> None:
    """Where it has such layers: a tied model has no head of its own."""
    model, out = tiny(tmp_path / "model", "t5", name), tmp_path / "out"
    made = quantize(EngineConfig(model=str(model), quantization="int8"), out)
    assert load(out, **BARE).config.quantization_keep == FAMILY.keep
    assert load(model, quantization="int8", **BARE).config.quantization_keep == FAMILY.keep
    assert answers(out) == answers(model, quantization="int8")
    assert made.kept == kept
    assert (answers(out) == answers(model, quantization="int8", quantization_keep=[])) == (kept == 0)


def test_the_folder_is_complete(bart: Path, tmp_path: Path) -> None:
    (bart / "LICENSE").write_text("free")
    (bart / "optimizer.pt").write_text("large")
    (bart / "model.safetensors.index.json").write_text("{}")
    seen: list[str] = []

    def watch(names: Any) -> Any:
        for name in names:
            seen.append(name)
            yield name

    out = tmp_path / "deep" / "out"
    quantize(EngineConfig(model=str(bart), quantization="int8"), out, watch)
    files = {path.name for path in bart.iterdir()} - {"optimizer.pt", "model.safetensors.index.json"}
    assert {path.name for path in out.iterdir()} == files
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    config = json.loads((out / "config.json").read_text())
    entry = config.pop("quantization_config")
    assert entry == {"quant_method": "int8", "version": 1, "keep": []}
    assert config == json.loads((bart / "config.json").read_text())
    assert len(seen) == len(set(seen)) > 20
    texts = ["hello", "a cab"]
    assert tokens(load(out).generate(texts)) == tokens(load(bart, quantization="int8").generate(texts))


def test_an_empty_folder_will_do(bart: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    written(bart, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_a_folder_that_cannot_be_made_is_named(bart: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/out' cannot be written"):
        written(bart, tmp_path / "file" / "out")


def test_a_folder_with_content_is_not_touched(bart: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").touch()
    for taken in (out, out / "notes"):
        with pytest.raises(ConfigError, match="is there already: give the name of a new folder, or empty it"):
            written(bart, taken)
    assert [path.name for path in out.iterdir()] == ["notes"]


@pytest.mark.parametrize(("error", "told"), [(KeyboardInterrupt, KeyboardInterrupt), (OSError, ConfigError)])
def test_what_is_interrupted_leaves_nothing(
    error: type[BaseException], told: type[BaseException], bart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("transduce.runtime.quantize.save_file", fail)
    with pytest.raises(told):
        written(bart, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["bart"]


def test_what_cannot_be_quantized(bart: Path, tmp_path: Path) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    with pytest.raises(
        ConfigError, match=r"no layer matches 'lm_head'.*the model has decoder\.layers\.\*\.encoder_attn"
    ):
        written(bart, out, "lm_head")
    with pytest.raises(ConfigError, match=r"quantization='int3': there is no such scheme; give one of .*int8"):
        quantize(EngineConfig(model=str(bart), quantization="int3"), out)
    with pytest.raises(ConfigError, match=r"quantization=None: name a scheme, one of .*int8"):
        quantize(EngineConfig(model=str(bart)), out)
    assert not out.exists()
    written(bart, out)
    with pytest.raises(CheckpointError, match="is stored as int8 already: use it as it is"):
        written(out, again)
    assert not again.exists()


def changed(folder: Path, entry: object) -> Path:
    """The folder, its config.json saying `entry` of how it is quantized."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": entry}))
    return folder


REFUSED: list[tuple[object, str]] = [
    ({"quant_method": "gptq", "bits": 4}, "is quantized by 'gptq', which is not supported: give the model it was made"),
    ({"quant_method": "bitsandbytes"}, r"by 'bitsandbytes', .* from, and a quantization \(.*int8\)"),
    ("int8", "is quantized by None, which"),
    ({"quant_method": "int8", "version": 2, "keep": []}, "is stored as int8 of version 2, and this Transduce reads 1"),
    ({"quant_method": "int8", "version": 1, "keep": "x"}, "keep 'x': it should be a list of names"),
]


@pytest.mark.parametrize(("entry", "reason"), REFUSED)
@pytest.mark.parametrize("use", [load, lambda folder: written(folder, folder / "out")], ids=["load", "quantize"])
def test_what_something_else_quantized_is_refused(
    use: Callable[[Path], object], entry: object, reason: str, bart: Path
) -> None:
    with pytest.raises(CheckpointError, match=reason):
        use(changed(bart, entry))


def test_arguments_against_the_checkpoint_are_refused(bart: Path, tmp_path: Path) -> None:
    written(bart, tmp_path / "out", "shared")
    with pytest.raises(ConfigError, match=r"quantization='int3': '.*out' is stored as int8; leave it out"):
        load(tmp_path / "out", quantization="int3")
    with pytest.raises(ConfigError, match=r"was quantized with \('shared',\); leave it out, or give the model"):
        load(tmp_path / "out", quantization_keep=("*.fc1",))
    with pytest.raises(ConfigError, match=r"nothing is quantized; give a quantization \(.*int8\) too, or leave it out"):
        load(bart, quantization_keep=("shared",))
    with pytest.raises(ConfigError, match="no layer matches 'nothing'"):
        load(bart, quantization="int8", quantization_keep=["nothing"])


def test_integers_without_their_entry_in_the_config_are_unknown_tensors(bart: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written(bart, out)
    (out / "config.json").write_text((bart / "config.json").read_text())
    with pytest.raises(CheckpointError, match="weight_scale"):
        load(out)
