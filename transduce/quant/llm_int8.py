"""bitsandbytes' LLM.int8: integer weights, and of every row the values that are outliers meet them as floats.

bitsandbytes takes the columns in which any row of a batch has an outlier; here each row has its own, so that its result
does not depend on the others. Knows no layer and no model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.errors import CheckpointError
from transduce.quant.base import Epilogue, Linear, ParamSpec, RowsHint, Scheme, Scope
from transduce.quant.bitsandbytes import METHOD, BitsAndBytes, is_ours
from transduce.quant.native import NativeLinear, available
from transduce.quant.none import PLAIN, Rows, by_rows

LIMIT = 127

THRESHOLD = 6.0
"""The magnitude from which a value is an outlier, where nobody says otherwise."""

FORMAT = "weight_format"


class LLMInt8(BitsAndBytes):
    """`weight` [out, in], int8, and `SCB` [out], float32: the largest magnitude of each output's weights."""

    name = f"{METHOD}-int8"
    mark = "SCB"

    def __init__(self, threshold: float = THRESHOLD, stored: bool = False) -> None:
        super().__init__(stored)
        self._threshold = threshold

    def of(self, entry: Mapping[str, Any]) -> Scheme | None:
        if not (is_ours(entry) and entry.get("load_in_8bit")):
            return None
        return type(self)(float(entry.get("llm_int8_threshold", THRESHOLD)), stored=True)

    def params(self, out_features: int, in_features: int) -> dict[str, ParamSpec]:
        return {
            "weight": ParamSpec((out_features, in_features), out_dim=0, in_dim=1, dtype=torch.int8),
            "SCB": ParamSpec((out_features,), out_dim=0, in_dim=None, dtype=torch.float32),
        }

    def load(self, layer: Scope, out_features: int, in_features: int) -> dict[str, Tensor]:
        if layer.has(FORMAT) and layer.whole(FORMAT).item() != 0:
            raise CheckpointError(f"{layer.name}.weight is not stored row by row: save it with a newer bitsandbytes")
        return super().load(layer, out_features, in_features)

    def quantize(self, weight: Tensor) -> dict[str, Tensor]:
        half = weight.half().float()  # as bitsandbytes does first
        largest = half.abs().amax(1)
        per_unit = torch.where(largest > 0, LIMIT / largest, 0)
        integers = (half * per_unit[:, None]).round().to(torch.int8)
        return {"weight": integers, "SCB": largest}

    def prepare(self, tensors: Mapping[str, Tensor], epilogue: Epilogue, rows: RowsHint) -> Linear:
        weight, scale = tensors["weight"], tensors["SCB"] / LIMIT
        if available(weight.device):
            return NativeLinear.pack(weight, scale, epilogue, threshold=self._threshold)
        return Mixed(weight, scale, epilogue, self._threshold, rows.tile)

    def call_rows(self, dtype: torch.dtype, device: torch.device, tile: int) -> int:
        return 1 if available(device) else tile


@dataclass(frozen=True, slots=True, eq=False)
class Mixed(Linear):
    """A layer by torch alone. threshold: 0 where no value is an outlier."""

    weight: Tensor
    scale: Tensor
    epilogue: Epilogue
    threshold: float
    tile: int

    def __call__(self, x: Tensor, times: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        weight = self.weight.float()
        out = by_rows(x.float(), Rows.TILE, self.tile, lambda part: self._product(part, weight))
        out = out if times is None else out * times
        return (out if plus is None else out + plus).to(self.epilogue.dtype)

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        outlying = (x.abs() >= self.threshold) & (self.threshold > 0)
        rest = x.masked_fill(outlying, 0)
        unit = rest.abs().amax(1, keepdim=True) / LIMIT
        integers = (rest * torch.where(unit > 0, 1 / unit, 0)).round()
        out = (F.linear(integers, weight) * unit + F.linear(x.masked_fill(~outlying, 0), weight)) * self.scale
        out = out if self.epilogue.bias is None else out + self.epilogue.bias.float()
        return PLAIN[self.epilogue.activation](out)
