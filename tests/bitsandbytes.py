"""Checkpoints as transformers saves them with bitsandbytes, and what such weights amount to.

bitsandbytes' CPU kernel reads a row's blocks as if each row began one; flat, a weight is a single row.
"""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

Way = Callable[[str, Tensor], dict[str, Tensor]]
"""A layer's name and weight to the tensors that are stored."""

ENTRY: dict[str, Any] = {"quant_method": "bitsandbytes", "llm_int8_threshold": 6.0}


def four_bit(kind: str, nested: bool, storage: torch.dtype = torch.uint8) -> Way:
    def stored(name: str, weight: Tensor) -> dict[str, Tensor]:
        packed, state = bnb.quantize_4bit(weight, compress_statistics=nested, quant_type=kind, quant_storage=storage)
        parts = {f"{name}.{key}": tensor for key, tensor in state.as_dict(packed=True).items()}
        return {name: packed} | parts

    return stored


def eight_bit(name: str, weight: Tensor) -> dict[str, Tensor]:
    integers, largest, _ = bnb.int8_vectorwise_quant(weight.half())
    layer = name.removesuffix("weight")
    return {name: integers, f"{layer}SCB": largest, f"{layer}weight_format": torch.tensor(0, dtype=torch.uint8)}


def folder(floats: Path, out: Path, layers: Collection[str], way: Way, **entry: Any) -> Path:
    """The folder `floats` with the weights of these layers, by the checkpoint's names, stored so."""
    out.mkdir()
    for file in floats.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    tensors: dict[str, Tensor] = {}
    for name, tensor in load_file(floats / "model.safetensors").items():
        tensors |= way(name, tensor) if name.removesuffix(".weight") in layers else {name: tensor}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out / "model.safetensors")
    config = json.loads((floats / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"quantization_config": ENTRY | entry}))
    return out


def four_bit_floats(weight: Tensor, kind: str, nested: bool) -> Tensor:
    """The floats that are left of a weight."""
    packed, state = bnb.quantize_4bit(weight.flatten(), compress_statistics=nested, quant_type=kind)
    floats: Tensor = bnb.dequantize_4bit(packed, state)
    return floats.view(weight.shape)


class RowByRow(nn.Module):
    """LLM.int8 of one row at a time, so that the outliers are its own."""

    integers: Tensor
    largest: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None, threshold: float) -> None:
        super().__init__()
        self.integers, self.largest, _ = bnb.int8_vectorwise_quant(weight.half())
        self.bias, self.threshold = bias, threshold

    @property
    def weight(self) -> Tensor:
        """Whose dtype some models ask for."""
        return self.largest

    def forward(self, x: Tensor) -> Tensor:
        rows: Tensor = torch.cat([self._row(row[None]) for row in x.reshape(-1, x.shape[-1])])
        out = rows.view(*x.shape[:-1], -1)
        return out if self.bias is None else torch.add(out, self.bias)

    def _row(self, row: Tensor) -> Tensor:
        """Not rounded to float16 before, as a GPU would have it: that moves one integer in thirty."""
        if not row.abs().amax():
            return torch.zeros(1, len(self.integers))
        integers, largest, outliers = torch.ops.bitsandbytes.int8_vectorwise_quant(row.clone(), self.threshold)
        operands = (row, integers, self.integers, largest, self.largest, outliers)
        out: Tensor = torch.ops.bitsandbytes.int8_mixed_scaled_mm(*operands)[0]
        return out
