"""Images to rows: a convolution over patches, and config.json's two ways to give a size."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from transduce.errors import CheckpointError
from transduce.layers.build import Builder


def pair(name: str, value: int | list[int]) -> tuple[int, int]:
    """Height and width of a size that may be one number for both. CheckpointError for anything else."""
    match value:
        case int(both):
            return both, both
        case [int(height), int(width)] if height > 0 < width:
            return height, width
    raise CheckpointError(f"config.json has {name}={value!r}; it should be a height and a width, or one for both")


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """weight: [d, channels, height, width] of a patch. bias: [d]."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def build(cls, b: Builder, channels: int, patch: tuple[int, int], d: int) -> "Patches":
        at = b.at("patch_embeddings.projection")
        return cls(at.tensor("weight", (d, channels, *patch)), at.tensor("bias", (d,)))

    def __call__(self, image: Tensor) -> Tensor:
        """image [channels, height, width] -> [patches, d]; what is no whole patch at the right and below is left."""
        grid = F.conv2d(image[None].to(self.weight.dtype), self.weight, self.bias, stride=self.weight.shape[2:])
        return grid[0].flatten(1).T.contiguous()
