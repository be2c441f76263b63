"""A model folder as found: its parsed configs, its weight files, its revision; and why it cannot be used, if so.

Knows no family and reads no tensor.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from transduce.config import EngineConfig, LoadFormat
from transduce.errors import CheckpointError
from transduce.models.config import CONFIG, GENERATION, read_json
from transduce.runtime import ctranslate2
from transduce.runtime.hub import locate

SAFETENSORS, TORCH = "model.safetensors", "pytorch_model.bin"

FORMATS: Mapping[LoadFormat, tuple[str, ...]] = {
    "auto": (SAFETENSORS, TORCH, ctranslate2.MODEL),
    "safetensors": (SAFETENSORS,),
    "pt": (TORCH,),
    "bitsandbytes": (SAFETENSORS, TORCH),
    "dummy": (),
}
"""Weight files by load_format, best first."""

FOREIGN: Mapping[str, str] = {
    "*.gguf": "GGUF",
    "*.onnx": "ONNX",
    "model.bin": "CTranslate2",
    "*.h5": "TensorFlow",
    "*.msgpack": "Flax",
}
"""Files of other engines that hold a model."""

LISTED = 8
"""How many of a folder's files a message lists."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A model folder. `open_checkpoint` fills it.

    config, generation: config.json and generation_config.json (None where absent), as they are, or as they would be if
    the folder were not CTranslate2's. files: weight files of one format, none with load_format "dummy". revision: the
    hub's commit, else a fingerprint of the files.
    """

    folder: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any] | None
    files: tuple[Path, ...]
    revision: str

    @property
    def asked(self) -> Mapping[str, Any]:
        """What it asks of generation, as transformers has it: generation_config.json, else config.json."""
        return self.config if self.generation is None else self.generation

    @property
    def model_type(self) -> str:
        """config.json's `model_type`, which names the family; CheckpointError where there is none."""
        model_type = self.config.get("model_type")
        if not isinstance(model_type, str) or not model_type:
            raise CheckpointError(
                f"{self.folder / CONFIG} has model_type {model_type!r}: add the name of the architecture, "
                'such as "model_type": "bart"'
            )
        return model_type

    @property
    def architectures(self) -> tuple[str, ...]:
        """config.json's `architectures`, empty where absent; CheckpointError where they are no list of names."""
        named = self.config.get("architectures") or []
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise CheckpointError(
                f"{self.folder / CONFIG} has architectures {named!r}: give a list of names, or leave it out"
            )
        return tuple(named)


def open_checkpoint(config: EngineConfig) -> Checkpoint:
    """The checkpoint that `config.model` names: a local folder or a hub id. CheckpointError says what is missing."""
    formats = FORMATS[config.load_format]
    folder = locate(config.model, config.revision, formats, code=config.trust_remote_code)
    if not (folder / CONFIG).is_file():
        raise _refusal(folder, CONFIG)
    files = _weight_files(folder, formats) if formats else ()
    said, generation = _configs(folder)
    return Checkpoint(folder, said, generation, files, _revision(folder, [folder / CONFIG, *files]))


def _configs(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """config.json and generation_config.json. CTranslate2's config.json names no model; its model.bin does."""
    config, generation = read_json(folder / CONFIG), folder / GENERATION
    if "model_type" not in config and (folder / ctranslate2.MODEL).is_file():
        made = ctranslate2.convert(folder)
        return made.config, made.generation
    return config, read_json(generation) if generation.is_file() else None


def _weight_files(folder: Path, formats: Sequence[str]) -> tuple[Path, ...]:
    for name in formats:
        if (folder / name).is_file():
            return (folder / name,)
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _shards(index)
    for other in FORMATS["auto"]:
        if other not in formats and ((folder / other).is_file() or (folder / f"{other}.index.json").is_file()):
            raise CheckpointError(f"{str(folder)!r} has no {formats[0]}, but it has {other}: use load_format='auto'")
    raise _refusal(folder, " or ".join(formats))


def _shards(index: Path) -> tuple[Path, ...]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise CheckpointError(f"{index} has no weight_map: save or download it again")
    for tensor, name in names.items():
        if not isinstance(name, str):
            raise CheckpointError(f"{index} has {name!r} as the file of {tensor}: save or download it again")
    shards = tuple(index.parent / name for name in sorted(set(names.values())))
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise CheckpointError(
            f"{str(index.parent)!r} has {len(shards) - len(missing)} of {len(shards)} shards: {_listed(missing)} of "
            f"{index.name} missing; copy or download the rest"
        )
    return shards


def _revision(folder: Path, files: Sequence[Path]) -> str:
    """The commit a hub snapshot is named after, else a hash of the files' names, sizes and times."""
    if folder.parent.name == "snapshots" and re.fullmatch("[0-9a-f]{40}", folder.name):
        return folder.name
    stats = [(file.name, file.stat()) for file in files]
    seen = repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
    return blake2b(seen.encode(), digest_size=20).hexdigest()


def _refusal(folder: Path, missing: str) -> CheckpointError:
    """The error for a folder without a file it needs: what the folder seems to be, and the way out."""
    return CheckpointError(f"{str(folder)!r} has no {missing}{_adapter(folder) or _trainer(folder) or _found(folder)}")


def _adapter(folder: Path) -> str | None:
    path = folder / "adapter_config.json"
    if not path.is_file():
        return None
    base = read_json(path).get("base_model_name_or_path")
    return (
        f": it holds only an adapter of {base!r}; merge the two (peft: merge_and_unload(), then save_pretrained()) "
        "and give the merged folder"
    )


def _trainer(folder: Path) -> str | None:
    """A trainer's output folder holds checkpoint-500, checkpoint-1000 and so on."""
    steps = [
        (int(name), path)
        for path in folder.glob("checkpoint-*")
        if path.is_dir() and (name := path.name.removeprefix("checkpoint-")).isdecimal()
    ]
    return f": give one of its checkpoints; the newest is {str(max(steps)[1])!r}" if steps else None


def _found(folder: Path) -> str:
    for pattern, engine in FOREIGN.items():
        for file in sorted(folder.glob(pattern)):
            return f": {file.name} looks like {engine}'s format; give the transformers folder it was made from"
    names = sorted(path.name for path in folder.iterdir())
    content = f"it holds {_listed(names)}" if names else "it is empty"
    return f": {content}; give a folder that save_pretrained() wrote"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
