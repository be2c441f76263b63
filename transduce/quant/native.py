"""Linear layers on the CPU kernels: whatever they hold, one call does all that follows the product.

Knows no scheme: those that use it say what is packed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.kernels import linear as kernel
from transduce.kernels import ops
from transduce.kernels.load import library
from transduce.quant.base import Activation, Epilogue, Linear

ACTIVATIONS: dict[Activation | None, kernel.Activation] = {
    None: kernel.Activation.NONE,
    "relu": kernel.Activation.RELU,
    "gelu": kernel.Activation.GELU,
    "gelu_new": kernel.Activation.GELU_NEW,
    "silu": kernel.Activation.SILU,
}


@dataclass(frozen=True, slots=True, eq=False)
class NativeLinear(Linear):
    """A packed weight and its epilogue."""

    packed: kernel.Packed
    dtype: torch.dtype

    @classmethod
    def pack(
        cls, weight: Tensor, scale: Tensor | None, epilogue: Epilogue, wide: bool = False, threshold: float = 0.0
    ) -> "NativeLinear":
        """weight [out, in]: float32, bfloat16, or int8 with a scale [out]; wide, threshold: see kernels.linear.pack."""
        native = library()
        assert native is not None, "asked only where there are kernels"
        activation = ACTIVATIONS[epilogue.activation]
        return cls(kernel.pack(native, weight, scale, epilogue.bias, activation, wide, threshold), epilogue.dtype)

    @classmethod
    def pack_codes(cls, codes: Tensor, absmax: Tensor, levels: Tensor, epilogue: Epilogue) -> "NativeLinear":
        """A weight of 4-bit codes, which are rounded to the epilogue's dtype: see kernels.linear.pack_codes."""
        native = library()
        assert native is not None, "asked only where there are kernels"
        activation, dtype = ACTIVATIONS[epilogue.activation], epilogue.dtype
        return cls(kernel.pack_codes(native, codes, absmax, levels, dtype, epilogue.bias, activation), dtype)

    def __call__(self, x: Tensor, times: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        return ops.linear(self.packed, x, self.dtype, times, plus)

    def best(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return ops.linear_best(self.packed, x)

    def top_k_lse(self, x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        return ops.linear_top_k_lse(self.packed, x, min(k, self.packed.outputs))


def available(device: torch.device) -> bool:
    """Whether the kernels can serve tensors there."""
    return device.type == "cpu" and library() is not None
