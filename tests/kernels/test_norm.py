"""The norm kernels against torch, at every level that this CPU runs."""

from collections.abc import Callable
from ctypes import CDLL

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.kernels import load, norm
from transduce.layers.norm import RMSNorm

Apply = Callable[[Tensor], Tensor]

WIDTHS = [1, 3, 15, 16, 17, 63, 64, 65, 100, 384, 768, 1023]
DTYPES = [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16)]


@pytest.fixture(params=load.usable_levels())
def library(request: pytest.FixtureRequest) -> CDLL:
    return load.load(request.param)


def operands(rows: int, d: int, x: torch.dtype, weight: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows * 10_000 + d)
    values = torch.randn(rows, d, generator=generator) * 3 + 1
    weights = torch.randn(2, d, generator=generator)
    return values.to(x), weights[0].to(weight), weights[1].to(weight)


def close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.dtype == theirs.dtype
    tolerance = 2e-6 if ours.dtype == torch.float32 else 1e-2  # a bfloat16 may fall on the other side of a tie
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize(("dtype", "weights"), DTYPES)
def test_layer_norm_is_torchs(library: CDLL, d: int, dtype: torch.dtype, weights: torch.dtype) -> None:
    x, weight, bias = operands(5, d, dtype, weights)
    wanted = F.layer_norm(x.float(), (d,), weight.float(), bias.float(), 1e-5).to(dtype)
    close(norm.layer_norm(library, x, weight, bias, 1e-5), wanted)


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize(("dtype", "weights"), DTYPES)
def test_rms_norm_is_the_layers(library: CDLL, d: int, dtype: torch.dtype, weights: torch.dtype) -> None:
    x, weight, _ = operands(5, d, dtype, weights)
    close(norm.rms_norm(library, x, weight, 1e-6), RMSNorm(weight, 1e-6)(x).to(dtype))


def test_rms_norm_rounds_before_it_multiplies(library: CDLL) -> None:
    x, weight, _ = operands(400, 64, torch.bfloat16, torch.bfloat16)
    ours = norm.rms_norm(library, x, weight, 1e-6)
    once = (x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6) * weight.float()).to(torch.bfloat16)
    twice = RMSNorm(weight, 1e-6)(x)
    assert (ours == twice).float().mean() > 0.999
    assert (ours == once).float().mean() < 0.9


def test_a_small_spread_around_a_large_mean_survives(library: CDLL) -> None:
    x = 1_000 + torch.randn(3, 384, generator=torch.Generator().manual_seed(0)) / 10
    wanted = F.layer_norm(x.double(), (384,)).float()
    ours = norm.layer_norm(library, x, torch.ones(384), torch.zeros(384), 1e-5)
    torch.testing.assert_close(ours, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("d", [100, 384])
def test_a_row_is_the_same_alone_and_anywhere(library: CDLL, d: int, dtype: torch.dtype) -> None:
    x, weight, bias = operands(1_100, d, dtype, dtype)  # so many that threads share them
    kernels: list[Apply] = [
        lambda rows: norm.layer_norm(library, rows, weight, bias, 1e-5),
        lambda rows: norm.rms_norm(library, rows, weight, 1e-6),
    ]
    for kernel in kernels:
        together = kernel(x)
        for row in (0, 1, 550, 1_099):
            assert torch.equal(kernel(x[row : row + 1]), together[row : row + 1])


def test_no_rows(library: CDLL) -> None:
    x, weight, bias = operands(0, 64, torch.float32, torch.float32)
    assert norm.layer_norm(library, x, weight, bias, 1e-5).shape == (0, 64)
    assert norm.rms_norm(library, x, weight, 1e-5).shape == (0, 64)
