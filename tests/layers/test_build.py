"""The Builder: names, fused layers, aliases."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models.harness import Slots, StateDict
from transduce.attention.reference import Reference
from transduce.errors import CheckpointError
from transduce.layers.build import DECODER_TILE, ENCODER_TILE, Builder, Context
from transduce.layers.embedding import Embedding, IntegerEmbedding
from transduce.quant.int8 import Int8
from transduce.quant.keep import Keep
from transduce.quant.none import TorchLinear, Unquantized


def _builder(tensors: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> Builder:
    context = Context(Reference(), Unquantized(), dtype, torch.device("cpu"), Slots())
    return Builder(StateDict(tensors), context)


def _quantized(tensors: dict[str, Tensor], *keep: str, dtype: torch.dtype = torch.float32) -> Builder:
    context = Context(Reference(), Int8(), dtype, torch.device("cpu"), Slots(), Keep(keep))
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
    layers = [each.linear("fc", 4, 6, bias=False) for each in (b, b.for_encoder_rows())]
    assert [layer.tile for layer in layers if isinstance(layer, TorchLinear)] == [DECODER_TILE, ENCODER_TILE]


def test_results_may_come_in_another_dtype() -> None:
    b = _builder({"fc.weight": torch.randn(6, 4)}, torch.bfloat16)
    x = torch.randn(2, 4, dtype=torch.bfloat16)
    assert b.linear("fc", 4, 6, bias=False)(x).dtype == torch.bfloat16
    assert b.linear("fc", 4, 6, bias=False, dtype=torch.float32)(x).dtype == torch.float32


def test_of_fused_layers_some_may_be_kept() -> None:
    tensors, x = _attention("attn"), torch.randn(5, 4)
    layers = [
        _quantized(tensors, *keep).at("attn").linear(("q", "k", "v"), 4, (6, 6, 6), bias=(True, False, True))(x)
        for keep in ((), ("*.k",), ("*",))
    ]
    quantized, mixed, plain = (layer.split(6, 1) for layer in layers)
    assert all(torch.equal(mixed[part], quantized[part]) for part in (0, 2))
    assert torch.equal(mixed[1], plain[1])
    assert not torch.equal(quantized[1], plain[1])


def test_a_layer_is_the_same_from_floats_and_as_stored() -> None:
    weight, x = torch.randn(6, 4), torch.randn(5, 4)
    stored = {f"fc.{key}": tensor for key, tensor in Int8().quantize(weight).items()}
    layers = [_quantized(tensors).linear("fc", 4, 6, bias=False) for tensors in ({"fc.weight": weight}, stored)]
    assert torch.equal(layers[0](x), layers[1](x))


def test_a_weight_is_quantized_as_stored_not_as_the_model_computes() -> None:
    weight = torch.randn(6, 40)
    table = _quantized({"fc.weight": weight}, dtype=torch.bfloat16).embedding("fc", 6, 40)
    assert torch.equal(table.table, Int8().quantize(weight)["weight"])


@pytest.mark.parametrize("keep", [(), ("decoder.shared",)])
def test_a_table_that_is_asked_for_twice_is_kept_once(keep: tuple[str, ...]) -> None:
    b = _quantized({"decoder.shared.weight": torch.randn(3, 4)}, *keep).at("decoder")
    first, second = b.embedding("shared", 3, 4), b.embedding("shared", 3, 4, scale=2.0)
    assert first.table is second.table
    assert isinstance(first, Embedding if keep else IntegerEmbedding)
    ids = torch.tensor([2, 0])
    torch.testing.assert_close(second(ids), first(ids) * 2.0)
