"""LayerNorm and RMSNorm over the last dimension. A row's result does not depend on the other rows."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class LayerNorm:
    """(x - mean) / sqrt(variance + eps) * weight + bias; x [rows, d]."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True, eq=False)
class RMSNorm:
    """x / sqrt(mean(x²) + eps) * weight, the mean in float32; x [rows, d]."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        mean = x.float().square().mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean + self.eps)).to(self.weight.dtype)


Norm = LayerNorm | RMSNorm
