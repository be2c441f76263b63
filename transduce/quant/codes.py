"""Weights of four bits as bitsandbytes has them: codes of sixteen levels, times the largest magnitude of their block.

Owns the levels and the arithmetic, equal to bitsandbytes' bit for bit. Knows no file and no kernel.
"""

from collections.abc import Sequence
from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64
"""Neighbours of the flattened weight that share their largest magnitude, where nobody says otherwise."""

AT_ONCE = 1 << 22
"""Values to quantize at a time: what is made of them on the way is many times as large. A multiple of BLOCK."""

LEAST = 1e-38
"""A block of less than this is one of zeros."""

NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)  # fmt: skip
"""Quantiles of the normal distribution, zero among them."""

FP4 = tuple(sign * level / 12 for sign in (1, -1) for level in (0, 0.0625, 8, 12, 4, 6, 2, 3))
"""Floats of a sign, two bits of exponent and one of mantissa."""


def run_of(in_features: int) -> int:
    """How many inputs of an output share a block in every output: a block may begin anywhere in a row."""
    return gcd(in_features, BLOCK)


def quantize(weight: Tensor, levels: Sequence[float]) -> tuple[Tensor, Tensor]:
    """weight, of any shape and float type, as codes [ceil(n / 2)], uint8, the first of two in the high half, and the
    blocks' absmax [ceil(n / BLOCK)], float32.
    """
    flat = weight.reshape(-1)
    table = torch.tensor(levels)
    order = table.argsort()
    bounds = (table[order][:-1] + table[order][1:]) / 2
    parts = [_blocks(part.float()) for part in flat.split(AT_ONCE)]
    even = [F.pad(scaled, (0, len(scaled) % 2)) for scaled, _ in parts]
    codes = torch.cat([order[torch.bucketize(scaled, bounds, out_int32=True)].to(torch.uint8) for scaled in even])
    return codes[::2] << 4 | codes[1::2], torch.cat([absmax for _, absmax in parts])


def _blocks(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values [n] divided by the largest magnitude of their block, and those magnitudes."""
    whole = len(values) // BLOCK * BLOCK
    blocks, rest = values[:whole].view(-1, BLOCK), values[whole:]
    absmax = blocks.abs().amax(1)
    scaled = (blocks * (1.0 / absmax.clamp(min=LEAST))[:, None]).clamp(-1, 1).flatten()
    if not len(rest):
        return scaled, absmax
    largest = rest.abs().amax().clamp(min=LEAST)
    return torch.cat([scaled, (rest / largest).clamp(-1, 1)]), torch.cat([absmax, largest[None]])


def spread(absmax: Tensor, block: int, out_features: int, in_features: int) -> Tensor:
    """The absmax [out, in / run_of(in)] of each run, of those of blocks [ceil(out * in / block)]."""
    run = run_of(in_features)
    return absmax[torch.arange(0, out_features * in_features, run) // block].view(out_features, -1)


def dequantize(codes: Tensor, absmax: Tensor, levels: Sequence[float]) -> Tensor:
    """codes [out, in / 2], two inputs in each, and absmax [out, in / run] as the weight [out, in], float32."""
    table = torch.tensor(levels, device=codes.device)
    values = table[torch.stack([codes >> 4, codes & 15], -1).flatten(1).int()]
    return values * absmax.repeat_interleave(values.shape[1] // absmax.shape[1], 1)
