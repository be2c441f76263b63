"""Writing a checkpoint whose weights are stored as a scheme has them: a folder that is loaded like any other.

Which tensors are those of layers is seen by building the model. Knows no family and no scheme.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from transduce import quant
from transduce.attention.reference import Reference
from transduce.config import EngineConfig
from transduce.errors import CheckpointError, ConfigError
from transduce.layers.build import Builder, Context
from transduce.layers.kv import KVSlot
from transduce.models.base import Family, find
from transduce.models.config import CONFIG, GENERATION
from transduce.quant.base import Scheme
from transduce.quant.keep import Keep
from transduce.quant.stored import KEY, described
from transduce.runtime.checkpoint import SAFETENSORS, Checkpoint, open_checkpoint
from transduce.runtime.hub import TEXT
from transduce.runtime.loader import CheckpointWeights
from transduce.runtime.quantization import chosen, is_bitsandbytes, resolve

COPIED = (*TEXT, "*.py", "*.md", "LICENSE*")
"""Files that go along; what is made anew and an index of weights are not among them."""

Watch = Callable[[Iterable[str]], Iterable[str]]
"""Passes on the names of tensors as they are written."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was made: layers quantized and kept, bytes of the weights before and after."""

    quantized: int
    kept: int
    before: int
    after: int


def quantize(config: EngineConfig, out: Path, watch: Watch = iter) -> Written:
    """Write `config.model`, quantized as `config` says, to the folder `out`: there whole, or not at all.

    Raises ConfigError for a folder with content or that cannot be written, and as `resolve` does; CheckpointError for a
    checkpoint that cannot be loaded or is quantized already.
    """
    _check_free(out)
    checkpoint = open_checkpoint(config)
    family = find(checkpoint.model_type)
    resolved = _resolved(config, checkpoint, family)
    scheme, keep = quant.named(resolved.quantization), chosen(config, resolved)
    tensors = _stored(_taken(checkpoint, family, scheme, keep), scheme, keep, watch)
    try:
        _write(checkpoint, resolved, out, tensors)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{str(out)!r} cannot be written ({error}): give a folder that can, with room") from error
    before, after = (sum(file.stat().st_size for file in files) for files in (checkpoint.files, [out / SAFETENSORS]))
    return Written(len(keep.quantized), len(keep.kept), before, after)


def _check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{str(out)!r} is there already: give the name of a new folder, or empty it")


def _resolved(config: EngineConfig, checkpoint: Checkpoint, family: Family) -> EngineConfig:
    if config.quantization is None:
        raise ConfigError(f"quantization=None: name a scheme, one of {', '.join(quant.schemes())}")
    if is_bitsandbytes(config.quantization):
        raise ConfigError(
            f"quantization={config.quantization!r}: such weights are made while a model is loaded; give int8, or save "
            "them with transformers and bitsandbytes"
        )
    resolved = resolve(config, checkpoint, family.keep)
    if KEY in checkpoint.config:
        stored = f"{str(checkpoint.folder)!r} is stored as {resolved.quantization}"
        raise CheckpointError(f"{stored} already: use it as it is")
    return resolved


class _Taken:
    """The weights that a model takes, by its names and then the checkpoint's.

    Of tables that are equal, a model that has the choice is shown one: a tied table is taken once.
    """

    def __init__(self, weights: CheckpointWeights, keep: Keep) -> None:
        self._weights = weights
        self._keep = keep
        self.tensors: dict[str, Tensor] = {}

    def has(self, name: str) -> bool:
        return self._weights.has(name) and (name in self.tensors or not self._is_twin(name))

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self.tensors[name] = self._weights.get(name, shape)
        return self.tensors[name]

    def whole(self, name: str) -> Tensor:
        return self._weights.whole(name)

    def generator(self, name: str) -> None:
        return self._weights.generator(name)

    def stored(self, name: str) -> str:
        return self._weights.stored(name)

    def _is_twin(self, name: str) -> bool:
        tensor = self._weights.whole(name)
        layers = self._keep.quantized | self._keep.kept
        others = (other for taken, other in self.tensors.items() if taken.removesuffix(".weight") in layers)
        return any(other.shape == tensor.shape and torch.equal(other, tensor) for other in others)


def _taken(checkpoint: Checkpoint, family: Family, scheme: Scheme, keep: Keep) -> _Taken:
    """What the family's model takes of the checkpoint; `keep` has seen its layers then."""
    weights = CheckpointWeights(checkpoint, family.rename)
    taken = _Taken(weights, keep)
    context = Context(
        Reference(), scheme, torch.float32, torch.device("cpu"), lambda group, layer: KVSlot(layer, 0), keep
    )
    with torch.inference_mode():
        family.build(family.config(checkpoint.config), Builder(taken, context))
    weights.finish()
    keep.finish()
    return taken


def _stored(taken: _Taken, scheme: Scheme, keep: Keep, watch: Watch) -> dict[str, Tensor]:
    """The tensors to write, by the checkpoint's names: of quantized layers the scheme's, others as they were."""
    tensors: dict[str, Tensor] = {}
    for name in watch(taken.tensors):
        layer, _, leaf = name.rpartition(".")
        stored, tensor = taken.stored(name), taken.tensors[name]
        made = scheme.quantize(tensor) if leaf == "weight" and layer in keep.quantized else {leaf: tensor}
        scope = stored.removesuffix(leaf)
        tensors |= {scope + key: each for key, each in made.items()}
    return tensors


def _write(checkpoint: Checkpoint, config: EngineConfig, out: Path, tensors: Mapping[str, Tensor]) -> None:
    """The folder, made beside its place and renamed."""
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
    partial.mkdir(parents=True)
    try:
        _copy_files(checkpoint, partial)
        stored = described(config.quantization, config.quantization_keep or ())
        _write_json(partial / CONFIG, {**checkpoint.config, KEY: stored})
        if checkpoint.generation is not None:
            _write_json(partial / GENERATION, checkpoint.generation)
        save_file(dict(tensors), partial / SAFETENSORS, metadata={"format": "pt"})
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _copy_files(checkpoint: Checkpoint, folder: Path) -> None:
    files = {file for pattern in COPIED for file in checkpoint.folder.glob(pattern)}
    for file in files:
        if file.is_file() and file.name not in {CONFIG, GENERATION} and not file.name.endswith(".index.json"):
            shutil.copyfile(file, folder / file.name)
