"""The scheme of a plain checkpoint: weights in the model's dtype, packed for the CPU kernels or for oneDNN.

Owns the rule that keeps a row's bits independent of the other rows in torch's matmuls (see `Rows`). Knows no layer
and no model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.quant.base import Activation, Epilogue, Linear, ParamSpec, RowsHint, Scheme
from transduce.quant.native import NativeLinear, available

MIN_ROWS = 4
"""Matmuls on fewer rows take other kernels, whose sums run in another order."""

# Activation to oneDNN's post-op and its algorithm. As a post-op it treats every element alike; an elementwise loop
# treats the last few of a tensor apart, so there a row's bits depend on where it lies.
POST_OPS: dict[Activation | None, tuple[str, str]] = {
    None: ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "silu": ("swish", ""),
}

PLAIN: dict[Activation | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


class Rows(Enum):
    """What a kernel needs for a row to come out the same in any company."""

    ENOUGH = "at least MIN_ROWS in a call"
    TILE = "exactly one tile in a call"


class Unquantized(Scheme):
    """`weight` [out, in] as it is."""

    def params(self, out_features: int, in_features: int) -> dict[str, ParamSpec]:
        return {"weight": ParamSpec((out_features, in_features), out_dim=0, in_dim=1)}

    def prepare(self, tensors: Mapping[str, Tensor], epilogue: Epilogue, rows: RowsHint) -> Linear:
        weight = tensors["weight"]
        if _native(weight.dtype, weight.device):
            return NativeLinear.pack(weight, None, epilogue)
        if _packs(weight.dtype, weight.device):
            weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
        bias = None if epilogue.bias is None else epilogue.bias.to(tensors["weight"].dtype)
        return TorchLinear(weight, replace(epilogue, bias=bias), rows.tile)

    def call_rows(self, dtype: torch.dtype, device: torch.device, tile: int) -> int:
        if _native(dtype, device):
            return 1
        return tile if _rows(dtype, _packs(dtype, device)) is Rows.TILE else MIN_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class TorchLinear(Linear):
    """A layer by torch's matmuls. weight [out, in], plain or in oneDNN's form."""

    weight: Tensor
    epilogue: Epilogue
    tile: int

    def __call__(self, x: Tensor, times: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        rule = _rows(self.weight.dtype, packed=self.weight.is_mkldnn)
        out = by_rows(x, rule, self.tile, lambda part: _linear(part, self.weight, self.epilogue))
        out = out.to(self.epilogue.dtype)
        out = out if times is None else out * times
        return out if plus is None else out + plus


def _native(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernels multiply such weights; float32 is left to oneDNN, which is faster at it."""
    return dtype == torch.bfloat16 and available(device)


def _packs(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether oneDNN has a packed form."""
    if not (device.type == "cpu" and torch.backends.mkldnn.is_available()):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _rows(dtype: torch.dtype, packed: bool) -> Rows:
    """oneDNN's AMX kernels for bf16 differ by row count, and of kernels that are not oneDNN's nothing is known."""
    amx = dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported()
    return Rows.TILE if amx or not packed else Rows.ENOUGH


def by_rows(x: Tensor, rule: Rows, tile: int, call: Callable[[Tensor], Tensor]) -> Tensor:
    """`call` on x [rows, in] in calls of as many rows as the rule demands, padded with zeros."""
    rows = x.shape[0]
    if rule is Rows.ENOUGH:
        return call(x) if rows >= MIN_ROWS else call(_padded(x, MIN_ROWS))[:rows]
    if rows <= tile:
        return call(_padded(x, tile))[:rows]
    return torch.cat([call(_padded(part, tile)) for part in x.split(tile)])[:rows]


def _padded(x: Tensor, rows: int) -> Tensor:
    return F.pad(x, (0, 0, 0, rows - x.shape[0])) if x.shape[0] < rows else x


def _linear(x: Tensor, weight: Tensor, epilogue: Epilogue) -> Tensor:
    if weight.is_mkldnn:
        post_op, algorithm = POST_OPS[epilogue.activation]
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, epilogue.bias, post_op, [], algorithm)
        return out
    return PLAIN[epilogue.activation](F.linear(x, weight, epilogue.bias))
