"""Norms against their formulas, and row by row the same."""

import pytest
import torch
from torch import Tensor

from transduce.layers.norm import LayerNorm, Norm, RMSNorm

WIDTHS = (16, 27, 64, 384, 513, 1024)
COUNTS = (*range(1, 41), 64, 127, 300, 600)


def _norms(d: int, dtype: torch.dtype) -> tuple[Norm, Norm]:
    generator = torch.Generator().manual_seed(d)
    weight, bias = (torch.randn(d, generator=generator).to(dtype) for _ in range(2))
    return LayerNorm(weight, bias, 1e-5), RMSNorm(weight, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("d", WIDTHS)
def test_a_row_has_the_same_bits_among_any_number(d: int, dtype: torch.dtype) -> None:
    x = torch.randn(600, d, generator=torch.Generator().manual_seed(1)).to(dtype)
    for norm in _norms(d, dtype):
        whole = norm(x)
        for count in COUNTS:
            start = (len(x) - count) // 2
            assert torch.equal(norm(x[start : start + count]), whole[start : start + count]), (norm, count)


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).sum(-1, keepdim=True) / x.shape[-1] + eps).sqrt() * weight


def test_layer_norm_is_its_formula() -> None:
    norm, _ = _norms(27, torch.float32)
    assert isinstance(norm, LayerNorm)
    x = 3 + torch.randn(9, 27)
    centred = x - x.mean(-1, keepdim=True)
    torch.testing.assert_close(norm(x), _rms(centred, norm.weight, 1e-5) + norm.bias)


def test_rms_norm_is_its_formula_and_keeps_the_dtype() -> None:
    _, norm = _norms(27, torch.float32)
    x = 3 + torch.randn(9, 27)
    torch.testing.assert_close(norm(x), _rms(x, norm.weight, 1e-6))
    assert _norms(27, torch.bfloat16)[1](x.bfloat16()).dtype == torch.bfloat16
