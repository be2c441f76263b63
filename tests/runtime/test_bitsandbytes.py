"""Checkpoints that bitsandbytes quantized, loaded by themselves; models quantized on loading; and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.bart.modeling_bart import BartForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

from tests import bitsandbytes
from tests.bitsandbytes import RowByRow, eight_bit, four_bit, four_bit_floats
from tests.folders import scored_folders
from tests.offline import load
from transduce import EngineConfig, SamplingParams
from transduce.errors import CheckpointError, ConfigError
from transduce.runtime.quantize import quantize

SOURCES = [[7, 9, 11, 2], [5, 2], [30, 8, 41, 22, 17, 3, 2]]
NEW = 6
CLASSES: dict[str, type[PreTrainedModel]] = {"bart": BartForConditionalGeneration, "t5": T5ForConditionalGeneration}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
FP4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}
INT8 = {"load_in_8bit": True}

Answer = tuple[list[int], list[float]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model of each family, without a tokenizer."""
    return scored_folders(tmp_path_factory.mktemp("floats"))


def linears(model: nn.Module) -> dict[str, nn.Linear]:
    """The layers that transformers has quantized: all but the head, which shares the table of tokens."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and name != "lm_head"}


def answers(folder: Path, **options: Any) -> list[Answer]:
    """Greedy tokens and their log-probabilities."""
    params = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True, logprobs=0)
    options = {"skip_tokenizer_init": True, "generation_config": "none"} | options
    sources = [{"prompt_token_ids": source} for source in SOURCES]
    outputs = [each.outputs[0] for each in load(folder, **options).generate(sources, params, use_tqdm=False)]
    made: list[Answer] = []
    for output in outputs:
        assert output.logprobs is not None
        pairs = zip(output.token_ids, output.logprobs, strict=True)
        made.append((output.token_ids, [likely[token].logprob for token, likely in pairs]))
    return made


@torch.no_grad()
def oracle(model: PreTrainedModel, given: list[Answer]) -> list[Answer]:
    """The model's own choices, and its log-probabilities for them, after each of the tokens given."""
    made: list[Answer] = []
    for source, (tokens, _) in zip(SOURCES, given, strict=True):
        prompt = torch.tensor([[model.config.decoder_start_token_id, *tokens[:-1]]])
        logits = model(input_ids=torch.tensor([source]), decoder_input_ids=prompt).logits[0]
        best = logits.log_softmax(-1).max(-1)
        made.append((best.indices.tolist(), best.values.tolist()))
    return made


def assert_agrees(ours: list[Answer], theirs: list[Answer], tolerance: float) -> None:
    for (tokens, values), (wanted, expected) in zip(ours, theirs, strict=True):
        assert tokens == wanted
        torch.testing.assert_close(torch.tensor(values), torch.tensor(expected), rtol=tolerance, atol=tolerance)


def in_floats(model: PreTrainedModel, layers: set[str], kind: str, nested: bool) -> PreTrainedModel:
    for name in layers:
        weight = model.get_parameter(f"{name}.weight")
        weight.data = four_bit_floats(weight.data, kind, nested)
    return model


@pytest.mark.parametrize("family", list(CLASSES))
@pytest.mark.parametrize(
    ("kind", "nested", "storage", "entry"),
    [("nf4", True, torch.uint8, NF4), ("nf4", False, torch.bfloat16, NF4), ("fp4", False, torch.uint8, FP4)],
    ids=["nf4, nested", "nf4, stored as bfloat16", "fp4"],
)
def test_four_bits_are_read(
    family: str,
    kind: str,
    nested: bool,
    storage: torch.dtype,
    entry: dict[str, Any],
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    """One layer is left in floats that stands between two fused ones which are not, and the whole of another block."""
    model = CLASSES[family].from_pretrained(folders[family])
    skipped = {name for name in linears(model) if "layers.0.self_attn.k_proj" in name or "block.0.layer.0" in name}
    layers = set(linears(model)) - skipped
    assert skipped
    way = four_bit(kind, nested, storage)
    stored = bitsandbytes.folder(
        folders[family], tmp_path / "out", layers, way, llm_int8_skip_modules=sorted(skipped), **entry
    )
    ours = answers(stored)
    assert_agrees(ours, oracle(in_floats(model, layers, kind, nested), ours), 1e-4)
    assert answers(stored, quantization="bitsandbytes", load_format="bitsandbytes") == ours
    assert not load_file(stored / "model.safetensors").keys() <= load_file(folders[family] / "model.safetensors").keys()


@pytest.mark.parametrize("family", list(CLASSES))
def test_integers_are_read(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    model = CLASSES[family].from_pretrained(folders[family]).eval()
    layers = linears(model)
    stored = bitsandbytes.folder(
        folders[family], tmp_path / "out", set(layers), eight_bit, llm_int8_threshold=2.0, **INT8
    )
    ours = answers(stored)
    for name, layer in layers.items():
        model.set_submodule(name, RowByRow(layer.weight, layer.bias, 2.0))
    assert_agrees(
        ours, oracle(model, ours), 0.1
    )  # where a value lies between two integers, one is as good as the other


@pytest.mark.parametrize("family", list(CLASSES))
@pytest.mark.parametrize(
    ("options", "way", "entry"),
    [
        ({"quantization": "bitsandbytes"}, four_bit("nf4", nested=False), NF4),
        ({"load_format": "bitsandbytes"}, four_bit("nf4", nested=False), NF4),
        ({"quantization": "bitsandbytes-fp4", "load_format": "bitsandbytes"}, four_bit("fp4", nested=False), FP4),
        ({"quantization": "bitsandbytes-int8"}, eight_bit, INT8),
    ],
    ids=["nf4", "by the format", "fp4", "int8"],
)
def test_on_loading_the_same_weights_are_made(
    family: str,
    options: dict[str, str],
    way: bitsandbytes.Way,
    entry: dict[str, Any],
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    layers = set(linears(CLASSES[family].from_pretrained(folders[family])))
    stored = bitsandbytes.folder(folders[family], tmp_path / "out", layers, way, **entry)
    assert answers(stored) == answers(folders[family], **options) != answers(folders[family])


def test_random_weights_are_made_as_codes(folders: dict[str, Path]) -> None:
    options = {"load_format": "dummy", "quantization": "bitsandbytes"}
    made = answers(folders["bart"], **options)
    assert made == answers(folders["bart"], **options) != answers(folders["bart"], load_format="dummy")
    assert all(value > -20 for _, values in made for value in values)


def broken(edit: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file(tensors, folder / "model.safetensors")

    return apply


WEIGHT = "model.encoder.layers.0.fc1.weight"
STATE = f"{WEIGHT}.quant_state.bitsandbytes__nf4"


def _state(**said: Any) -> Tensor:
    told = {"blocksize": 64, "shape": [40, 24], "quant_type": "nf4", "dtype": "float32"} | said
    return torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda held: held.pop(STATE), "fc1.weight is not stored as nf4"),
        (lambda held: held.update({STATE: torch.tensor([1, 2], dtype=torch.uint8)}), "is broken .*download"),
        (lambda held: held.update({STATE: _state(shape=None)}), "is broken .*download"),
        (lambda held: held.update({STATE: _state(shape=[24, 40])}), r"is of shape \[24, 40\], not \[40, 24\]"),
        (lambda held: held.update({STATE: _state(blocksize=4)}), "in blocks of 4, and blocks of 64 or a multiple"),
        (lambda held: held.update({WEIGHT: held[WEIGHT][1:]}), "has 479 bytes in 15 blocks of 64 values"),
        (lambda held: held.update({f"{WEIGHT}.quant_map": torch.zeros(16)}), "quant_map is not nf4's"),
    ],
    ids=["state", "no json", "no shape", "shape", "blocks", "bytes", "levels"],
)
def test_what_is_broken_is_refused(
    edit: Callable[[dict[str, Tensor]], object], reason: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    layers = {WEIGHT.removesuffix(".weight")}
    stored = bitsandbytes.folder(folders["bart"], tmp_path / "out", layers, four_bit("nf4", nested=False), **NF4)
    broken(edit)(stored)
    with pytest.raises(CheckpointError, match=reason):
        answers(stored)


def test_arguments_against_it_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    layers = {WEIGHT.removesuffix(".weight")}
    stored = bitsandbytes.folder(folders["bart"], tmp_path / "out", layers, four_bit("nf4", nested=False), **NF4)
    with pytest.raises(ConfigError, match="is stored as bitsandbytes; leave it out"):
        answers(stored, quantization="int8")
    with pytest.raises(ConfigError, match="load_format='bitsandbytes': the weights are to be int8"):
        answers(folders["bart"], quantization="int8", load_format="bitsandbytes")
    with pytest.raises(ConfigError, match="quantization='bitsandbytes': such weights are made while a model is loaded"):
        quantize(EngineConfig(model=str(folders["bart"]), quantization="bitsandbytes"), tmp_path / "never")
    plain = bitsandbytes.folder(folders["bart"], tmp_path / "plain", (), four_bit("nf4", nested=False), **NF4)
    with pytest.raises(CheckpointError, match="no layer is"):
        answers(plain)
