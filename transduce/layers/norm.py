"""LayerNorm and RMSNorm over the last dimension. A row's result does not depend on the other rows."""

from dataclasses import dataclass

from torch import Tensor

from transduce.kernels import ops


@dataclass(frozen=True, slots=True, eq=False)
class LayerNorm:
    """(x - mean) / sqrt(variance + eps) * weight + bias; x [rows, d]."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True, eq=False)
class RMSNorm:
    """x / sqrt(mean(x²) + eps) * weight, the mean in float32; x [rows, d]."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.weight, self.eps)


Norm = LayerNorm | RMSNorm
