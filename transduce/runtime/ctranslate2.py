"""CTranslate2's folders: model.bin, config.json and a vocabulary, brought to transformers' terms by their family.

Owns the container. Knows no family: what the variables are, `Family.ctranslate2` says.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transduce.errors import CheckpointError
from transduce.models.base import Converted, CTranslate2, Foreign, find, known
from transduce.models.config import CONFIG, read_json
from transduce.quant.stored import KEY, described
from transduce.runtime.broken import broken

MODEL = "model.bin"

VERSIONS = (5, 6)
"""Of the container, which read alike."""

DTYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
"""By the file's number for each."""

WAY_OUT = "give the transformers folder it was made from"


def convert(folder: Path) -> Converted:
    """What the folder holds; weights are mapped from the file, int8 ones as they are.

    Raises CheckpointError where its model is none that a family reads, or a file is missing, broken or of another time.
    """
    reader = _Reader(folder / MODEL)
    family = _family(reader)
    found = Foreign(read_json(folder / CONFIG), _vocabulary(folder), reader.variables())
    try:
        made = family.convert(found)
    except KeyError as error:
        raise broken(reader.file, f"it has no {error}") from error
    if all(tensor.dtype != torch.int8 for tensor in made.tensors.values()):
        return made
    return Converted({**made.config, KEY: described("int8", ())}, made.generation, made.tensors)


class _Reader:
    """Takes little-endian values off model.bin, the head at once. spec, revision: the model's layout of variables."""

    def __init__(self, file: Path) -> None:
        if not file.stat().st_size:
            raise broken(file, "it is empty")
        self.file = file
        self._bytes = np.memmap(file, np.uint8, "c")  # never written, but torch knows no memory that cannot be
        self._at = 0
        if (version := self._number("I")) not in VERSIONS:
            raise broken(file, f"its first number is {version}, not the {VERSIONS[-1]} of CTranslate2's files")
        self.spec = self._text()
        self.revision = self._number("I")

    def variables(self) -> dict[str, Tensor]:
        """All of them by name, as Foreign has them; an alias is its target, and so is its scale."""
        found = dict(_rescaled(dict(self._variable() for _ in range(self._number("I")))))
        for _ in range(self._number("I")):
            alias, target = self._text(), self._text()
            found |= {alias + end: found[target + end] for end in ("", "_scale") if target + end in found}
        return found

    def _variable(self) -> tuple[str, Tensor]:
        name = self._text()
        shape = [self._number("I") for _ in range(self._number("B"))]
        number, size = self._number("B"), self._number("I")
        if number >= len(DTYPES) or size != DTYPES[number].itemsize * np.prod(shape, dtype=np.int64):
            raise broken(self.file, f"{name} is of type {number} and shape {shape} in {size} bytes")
        return name, _aligned(torch.from_numpy(self._take(size)), DTYPES[number]).reshape(shape)

    def _text(self) -> str:
        """A name. Its length counts a closing NUL."""
        text = self._take(self._number("H"))[:-1].tobytes().decode(errors="replace")
        if not (text.isascii() and text.isprintable()):
            raise broken(self.file, "a name in it cannot be read")
        return text

    def _number(self, layout: str) -> int:
        (value,) = struct.unpack(f"<{layout}", self._take(struct.calcsize(layout)).tobytes())
        return int(value)

    def _take(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        start, self._at = self._at, self._at + size
        if self._at > len(self._bytes):
            raise broken(self.file, f"it ends after {len(self._bytes)} bytes, and goes on to {self._at} at least")
        return self._bytes[start : self._at]


def _aligned(data: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as numbers. Variables stand in the file without gaps, and code may count on whole addresses."""
    return (data if data.data_ptr() % dtype.itemsize == 0 else data.clone()).view(dtype)


def _rescaled(variables: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Weights that are divided by a scale: matrices of int8 as quant/int8.py has them, all others as floats."""
    for name, tensor in variables.items():
        scale = variables.get(f"{name}_scale")
        if scale is None:
            if not name.endswith("weight_scale"):
                yield name, tensor
        elif tensor.dtype == torch.int8 and tensor.dim() == 2:
            yield from ((name, tensor), (f"{name}_scale", 1 / scale))
        else:
            yield name, tensor.float() / scale.reshape(-1, *[1] * (tensor.dim() - 1))


def _family(reader: _Reader) -> CTranslate2:
    """The reader of the family whose name the model's layout has: WhisperSpec is Whisper's."""
    model_type = reader.spec.removesuffix("Spec").lower()
    family = find(model_type).ctranslate2 if model_type in known() else None
    if family is None:
        raise CheckpointError(f"{reader.file} is a {reader.spec} of CTranslate2, which is not supported: {WAY_OUT}")
    if family.revision != reader.revision:
        raise CheckpointError(
            f"{reader.file} is a {reader.spec} of revision {reader.revision}, and this Transduce reads "
            f"{family.revision}: convert it anew by today's CTranslate2, or {WAY_OUT}"
        )
    return family


def _vocabulary(folder: Path) -> list[str]:
    """Tokens by id, of today's file or of the one before."""
    today, before = folder / "vocabulary.json", folder / "vocabulary.txt"
    if today.is_file():
        return _tokens(today)
    if before.is_file():
        return before.read_text(encoding="utf-8").split("\n")
    raise CheckpointError(f"{str(folder)!r} has no {today.name} beside {MODEL}: copy or download it too")


def _tokens(file: Path) -> list[str]:
    try:
        tokens = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise broken(file, str(error)) from error
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise broken(file, "not a list of tokens")
    return tokens
