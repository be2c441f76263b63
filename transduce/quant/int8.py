"""Weights as 8-bit integers, symmetric per output; activations quantized row by row as they come, to 8 bits or, where
they hold outliers, to 15.

Where there are no kernels the integers are turned back into floats: the same weights, at the plain scheme's speed.
Knows no layer and no model.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.kernels.linear import quantize
from transduce.kernels.load import library
from transduce.quant.base import Epilogue, Linear, ParamSpec, RowsHint, Scheme
from transduce.quant.native import NativeLinear, available
from transduce.quant.none import Unquantized

LIMIT = 127


class Int8(Scheme):
    """`weight` [out, in], int8, and `weight_scale` [out], float32: what one of an output's integers is worth."""

    name = "int8"
    pages = torch.int8

    def __init__(self) -> None:
        self._floats = Unquantized()

    def params(self, out_features: int, in_features: int) -> dict[str, ParamSpec]:
        return {
            "weight": ParamSpec((out_features, in_features), out_dim=0, in_dim=1, dtype=torch.int8),
            "weight_scale": ParamSpec((out_features,), out_dim=0, in_dim=None, dtype=torch.float32),
        }

    def quantize(self, weight: Tensor) -> dict[str, Tensor]:
        integers, scale = quantized(weight)
        return {"weight": integers, "weight_scale": scale}

    def table(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        return tensors["weight"], tensors["weight_scale"]

    def prepare(self, tensors: Mapping[str, Tensor], epilogue: Epilogue, rows: RowsHint) -> Linear:
        integers, scale = tensors["weight"], tensors["weight_scale"]
        if available(integers.device):
            return NativeLinear.pack(integers, scale, epilogue, wide=rows.outliers)
        floats = dequantized(integers, scale, epilogue.dtype)
        return Dequantized(self._floats.prepare({"weight": floats}, epilogue, rows), epilogue.dtype)

    def call_rows(self, dtype: torch.dtype, device: torch.device, tile: int) -> int:
        return 1 if available(device) else self._floats.call_rows(dtype, device, tile)


@dataclass(frozen=True, slots=True, eq=False)
class Dequantized(Linear):
    """A layer of floats in the dtype of its results, whatever the rows' own is."""

    layer: Linear
    dtype: torch.dtype

    def __call__(self, x: Tensor, times: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        return self.layer(x.to(self.dtype), times, plus)


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [out, in] as int8 [out, in] and scale [out], float32: each output's largest magnitude is 127."""
    native = library()
    if native is not None and weight.device.type == "cpu":
        return quantize(native, weight if weight.dtype == torch.bfloat16 else weight.float())
    weight = weight.float()
    scale = weight.abs().amax(1) / LIMIT
    per_unit = torch.where(scale > 0, 1 / scale, 0)
    return (weight * per_unit[:, None]).round().to(torch.int8), scale


def dequantized(integers: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The floats [out, in] that integers [out, in] and scale [out] stand for."""
    return (integers.float() * scale[:, None]).to(dtype)
