"""A linear layer: a weight in some scheme, and what follows the matmul. Knows not how the weight is stored."""

from dataclasses import dataclass

from torch import Tensor

from transduce.quant.base import Epilogue, Scheme


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """activation(x @ weight.T + bias); x [rows, in] -> [rows, out]."""

    scheme: Scheme
    prepared: tuple[Tensor, ...]
    epilogue: Epilogue
    tile: int

    def __call__(self, x: Tensor) -> Tensor:
        return self.scheme.linear(x, self.prepared, self.epilogue, self.tile)
