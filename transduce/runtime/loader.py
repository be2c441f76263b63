"""What a checkpoint holds, loaded: its tensors by the model's names, and its tokenizer.

Owns the file formats, and that every tensor is asked for, found and of the right shape. Knows no family: names are
what `rename` makes of them.
"""

import pickle
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from transduce.errors import CheckpointError
from transduce.runtime import ctranslate2
from transduce.runtime.broken import broken
from transduce.runtime.checkpoint import Checkpoint

Rename = Callable[[str], str | None]
"""A tensor's name in the checkpoint to the model's name for it; None: the model has no use for it."""

PART = re.compile(
    r"(.+)\.(weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.\w+)|SCB|weight_format)"
)
"""What bitsandbytes stores beside a layer's weight: the layer and the tensor."""

LISTED = 5
"""How many unknown tensors a message lists."""

MISMATCH = "config.json may belong to other weights"


class CheckpointWeights:
    """The tensors of a checkpoint, mapped from its files: pages are read when a tensor is used.

    Two tensors that get one name must be equal. `has` counts as asking, so that the aliases of a tied tensor are
    known ones.
    """

    def __init__(self, checkpoint: Checkpoint, rename: Rename) -> None:
        self._checkpoint = checkpoint
        self._tensors: dict[str, Tensor] = {}
        self._stored: dict[str, str] = {}
        self._asked: set[str] = set()
        for stored, tensor in _read(checkpoint.files):
            name = renamed(stored, rename)
            if name is not None:
                self._add(name, stored, tensor)

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds the tensor."""
        self._asked.add(name)
        return name in self._tensors

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor as stored, any float type, or int8 beside its scale.

        CheckpointError where it is missing or of another shape or type.
        """
        tensor = self.whole(name)
        if tuple(tensor.shape) != shape:
            raise self._misshapen(name, tuple(tensor.shape), shape)
        scales = (f"{name}_scale", f"{name.removesuffix('weight')}SCB")
        if not tensor.is_floating_point() and not self._tensors.keys() & scales:
            raise self._error(
                f"has {self._stored[name]!r} in {tensor.dtype}: give a checkpoint in float32, bfloat16 or float16"
            )
        return tensor.contiguous()

    def stored(self, name: str) -> str:
        """The name in the checkpoint of a tensor that it holds."""
        return self._stored[name]

    def whole(self, name: str) -> Tensor:
        """The tensor whatever its shape and type. CheckpointError where it is missing."""
        if not self.has(name):
            raise self._error(f"has no tensor {name!r}{self._closest(name)}; {MISMATCH}")
        return self._tensors[name]

    def generator(self, name: str) -> None:
        """None: what there is, is stored."""

    def finish(self) -> None:
        """To be called when the model is built: CheckpointError names tensors that nobody asked for."""
        unknown = sorted(stored for name, stored in self._stored.items() if name not in self._asked)
        if unknown:
            more = f" and {len(unknown) - LISTED} more" if len(unknown) > LISTED else ""
            raise self._error(
                f"has {len(unknown)} tensors that a {self._checkpoint.model_type} of this config.json does not use: "
                f"{', '.join(unknown[:LISTED])}{more}; {MISMATCH}"
            )

    def _add(self, name: str, stored: str, tensor: Tensor) -> None:
        first = self._tensors.setdefault(name, tensor)
        twin = self._stored.setdefault(name, stored)
        if first is not tensor and not torch.equal(first, tensor):
            raise self._error(f"has {twin!r} and {stored!r}, which differ but are one tensor of the model: drop one")

    def _closest(self, name: str) -> str:
        close = [self._stored[match] for match in get_close_matches(name, self._tensors)]
        return f" (closest: {', '.join(close)})" if close else ""

    def _misshapen(self, name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> CheckpointError:
        fix = self._resized(shape, wanted) or MISMATCH
        return self._error(f"has {self._stored[name]!r} of shape {list(shape)}, not {list(wanted)}: {fix}")

    def _resized(self, shape: tuple[int, ...], wanted: tuple[int, ...]) -> str | None:
        """The fix where a vocabulary was resized without saving its new size."""
        if len(shape) != len(wanted):
            return None
        for size, expected in zip(shape, wanted, strict=True):
            for key in ("vocab_size", "decoder_vocab_size"):
                if size != expected and self._checkpoint.config.get(key) == expected:
                    return f"config.json says {key} {expected}, the weights {size}; set {key} to {size}"
        return None

    def _error(self, what: str) -> CheckpointError:
        return CheckpointError(f"{str(self._checkpoint.folder)!r} {what}")


class DummyWeights:
    """Random tensors that depend on name and shape alone, for trying a model's speed from its config.json.

    It has no tensor that a model could do without.
    """

    def has(self, name: str) -> bool:
        """False: only what must be there is made."""
        return False

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Normal values of deviation 0.02, and ones for the weight of a norm, which alone has one dimension."""
        if len(shape) == 1 and name.endswith("weight"):
            return torch.ones(shape)
        return torch.empty(shape).normal_(0, 0.02, generator=self.generator(f"{name} {shape}"))

    def whole(self, name: str) -> Tensor:
        """Nothing that is there has a shape of its own."""
        raise AssertionError(f"{name} is asked for though it is not there")

    def generator(self, name: str) -> torch.Generator:
        """One for each name."""
        digest = blake2b(name.encode(), digest_size=7).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest))

    def finish(self) -> None:
        """Nothing can be left over."""


def renamed(stored: str, rename: Rename) -> str | None:
    """The model's name for a tensor. What belongs to a quantized weight goes where the weight goes."""
    part = PART.fullmatch(stored)
    if part is None:
        return rename(stored)
    weight = rename(f"{part[1]}.weight")
    return None if weight is None else weight.removesuffix("weight") + part[2]


def open_weights(checkpoint: Checkpoint, rename: Rename) -> CheckpointWeights | DummyWeights:
    """The checkpoint's tensors, or random ones where it was opened with load_format "dummy"."""
    return CheckpointWeights(checkpoint, rename) if checkpoint.files else DummyWeights()


def _read(files: tuple[Path, ...]) -> Iterator[tuple[str, Tensor]]:
    for file in files:
        yield from _tensors(file).items()


def _tensors(file: Path) -> Mapping[str, Tensor]:
    if file.name == ctranslate2.MODEL:
        return ctranslate2.convert(file.parent).tensors
    return (_safetensors if file.suffix == ".safetensors" else _state_dict)(file)


def _safetensors(file: Path) -> Mapping[str, Tensor]:
    try:
        with safe_open(file, framework="pt") as handle:
            tensors: dict[str, Tensor] = handle.get_tensors()
            return tensors
    except (OSError, SafetensorError) as error:
        raise broken(file, str(error)) from error


def _state_dict(file: Path) -> Mapping[str, Tensor]:
    """A pickled state dict, of tensors alone; a file from before torch 1.6 is no zip and cannot be mapped."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except pickle.UnpicklingError as error:
        raise broken(file, "not a pickle of tensors alone") from error
    except Exception as error:
        # Random bytes make the unpickler raise almost anything.
        raise broken(file, str(error).partition("\n")[0]) from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()
    ):
        raise broken(file, "not a state dict: tensors by name")
    return {name: _dense(file, name, tensor.detach()) for name, tensor in state.items()}


def _dense(file: Path, name: str, tensor: Tensor) -> Tensor:
    if tensor.is_meta or tensor.layout is not torch.strided:
        kind = "no values" if tensor.is_meta else f"layout {tensor.layout}"
        raise CheckpointError(f"{file} has {name!r} with {kind}: save a dense tensor with its values")
    return tensor
