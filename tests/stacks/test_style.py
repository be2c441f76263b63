"""The parts of a layer, in both norm orders and both feed-forwards."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models.harness import Slots, StateDict
from transduce.attention.reference import Reference
from transduce.layers.build import Builder, Context
from transduce.layers.norm import LayerNorm, RMSNorm
from transduce.quant.none import Unquantized
from transduce.stacks.style import FeedForward, Residual, Style

STYLE = Style(layers=1, d=4, heads=2, head_dim=2, ffn=6, activation="relu", scale=1.0, pre_norm=True)


def _builder(**tensors: Tensor) -> Builder:
    named = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    context = Context(Reference(), Unquantized(), torch.float32, torch.device("cpu"), Slots())
    return Builder(StateDict(named), context)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_the_norm_stands_before_or_after(pre_norm: bool) -> None:
    norm, x = LayerNorm(torch.randn(4), torch.randn(4), 1e-5), torch.randn(3, 4)
    result = Residual(norm, pre_norm)(x, lambda rows, residual: rows.sin() + residual)
    torch.testing.assert_close(result, x + norm(x).sin() if pre_norm else norm(x + x.sin()))


def test_a_gate_multiplies_the_linear_half() -> None:
    style = replace(STYLE, bias=False, gated=True)
    fc1, gate, fc2, x = torch.randn(6, 4), torch.randn(6, 4), torch.randn(4, 6), torch.randn(3, 4)
    layer = FeedForward.build(_builder(fc1__weight=fc1, gate__weight=gate, fc2__weight=fc2), style)
    wanted = F.linear(F.linear(x, gate).relu() * F.linear(x, fc1), fc2)
    torch.testing.assert_close(layer(x, x), wanted + x)


def test_a_post_norm_stack_has_no_final_norm() -> None:
    b = _builder(layer_norm__weight=torch.ones(4), layer_norm__bias=torch.ones(4))
    assert replace(STYLE, pre_norm=False).build_final_norm(b) is None
    assert isinstance(STYLE.build_final_norm(b), LayerNorm)


def test_the_kind_of_norm_is_the_styles() -> None:
    norm = replace(STYLE, norm="rms", eps=0.5).build_norm(_builder(n__weight=torch.ones(4)), "n")
    assert isinstance(norm, RMSNorm)
    assert norm.eps == 0.5
