"""What the converters share: reading members, renaming tensors, writing a checkpoint folder."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

ReadMember = Callable[[str], bytes]
Array = npt.NDArray[Any]
Json = Mapping[str, object]


def rename(name: str, rules: Mapping[str, str]) -> str:
    """`name` after every rule, a regular expression and its replacement, in order."""
    for pattern, replacement in rules.items():
        name = re.sub(pattern, replacement, name)
    return name


def layers(names: Iterable[str], prefix: str) -> int:
    """How many layers there are: one more than the largest number behind `prefix`."""
    numbers = (re.match(re.escape(prefix) + r"(\d+)\.", name) for name in names)
    return 1 + max(int(number[1]) for number in numbers if number)


def write(folder: Path, tensors: Mapping[str, Array], files: Mapping[str, Json]) -> None:
    """Write `model.safetensors` and each of `files` as JSON."""
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
