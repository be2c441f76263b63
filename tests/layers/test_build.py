"""The Builder: names, fused layers, aliases."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models.harness import Slots, StateDict
from transduce.attention.reference import Reference
from transduce.errors import CheckpointError
from transduce.layers.build import DECODER_TILE, ENCODER_TILE, Builder, Context
from transduce.quant.none import Unquantized


def _builder(tensors: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> Builder:
    context = Context(Reference(), Unquantized(), dtype, torch.device("cpu"), Slots())
    return Builder(StateDict(tensors), context)


def _attention(scope: str) -> dict[str, Tensor]:
    tensors = {f"{scope}.{name}.weight": torch.randn(6, 4) for name in "qkv"}
    return {**tensors, f"{scope}.q.bias": torch.randn(6), f"{scope}.v.bias": torch.randn(6)}


def test_fused_layers_are_the_separate_ones_side_by_side() -> None:
    tensors, x = _attention("layers.0.attn"), torch.randn(5, 4)
    b = _builder(tensors).at("layers.0").at("attn")
    fused = b.linear(("q", "k", "v"), 4, (6, 6, 6), bias=(True, False, True))
    separate = [
        F.linear(x, tensors[f"layers.0.attn.{name}.weight"], tensors.get(f"layers.0.attn.{name}.bias"))
        for name in "qkv"
    ]
    torch.testing.assert_close(fused(x), torch.cat(separate, 1))


def test_a_bias_may_come_from_elsewhere() -> None:
    weight, bias, x = torch.randn(6, 4), torch.randn(6), torch.randn(5, 4)
    layer = _builder({"head.weight": weight}).linear("head", 4, 6, bias=bias)
    torch.testing.assert_close(layer(x), F.linear(x, weight, bias))


def test_tensors_come_in_the_models_dtype() -> None:
    b = _builder({"table.weight": torch.randn(3, 4, dtype=torch.float16)}, torch.bfloat16)
    assert b.embedding("table", 3, 4).table.dtype == torch.bfloat16


def test_the_first_name_wins_and_the_others_count_as_known() -> None:
    table = torch.randn(3, 4)
    weights = StateDict({"shared.weight": table, "lm_head.weight": table})
    b = Builder(weights, _builder({}).context)
    assert b.first("embed_tokens", "shared", "lm_head") == "shared"
    assert not weights.unknown


def test_a_missing_tensor_is_the_first_name_s() -> None:
    b = _builder({})
    with pytest.raises(CheckpointError, match=r"embed_tokens\.weight"):
        b.embedding(b.first("embed_tokens", "shared"), 3, 4)


def test_layers_that_see_encoder_rows_have_their_own_tile() -> None:
    b = _builder({"fc.weight": torch.randn(6, 4)})
    assert b.linear("fc", 4, 6, bias=False).tile == DECODER_TILE
    assert b.for_encoder_rows().linear("fc", 4, 6, bias=False).tile == ENCODER_TILE
