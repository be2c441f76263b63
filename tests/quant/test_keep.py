"""Layers that stay unquantized: by name and by pattern; and layers of which a part does."""

import pytest
import torch
from torch import Tensor

from transduce.errors import ConfigError
from transduce.quant.base import Epilogue, RowsHint
from transduce.quant.keep import Keep, SideBySide
from transduce.quant.none import Unquantized

LAYERS = ("lm_head", "decoder.embed_tokens", "decoder.layers.0.fc2", "decoder.layers.10.fc2", "encoder.layers.0.fc1")


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("lm_head", {"lm_head"}),
        ("*embed_tokens", {"decoder.embed_tokens"}),
        ("decoder.layers.0.*", {"decoder.layers.0.fc2"}),
        ("*.fc2", {"decoder.layers.0.fc2", "decoder.layers.10.fc2"}),
        ("*", set(LAYERS)),
    ],
)
def test_patterns(pattern: str, kept: set[str]) -> None:
    keep = Keep([pattern])
    assert {layer for layer in LAYERS if keep.covers(layer)} == kept == keep.kept
    assert keep.quantized == set(LAYERS) - kept
    keep.finish()


def test_without_patterns_nothing_is_kept() -> None:
    keep = Keep()
    assert not keep.covers("lm_head")
    keep.finish()


def test_a_pattern_that_covers_nothing_is_an_error_that_lists_what_there_is() -> None:
    keep = Keep(["lm_head", "LM_HEAD"])
    for layer in LAYERS:
        keep.covers(layer)
    with pytest.raises(ConfigError) as caught:
        keep.finish()
    listed = "decoder.embed_tokens, decoder.layers.*.fc2, encoder.layers.*.fc1, lm_head"
    assert str(caught.value) == f"no layer matches 'LM_HEAD', which is to stay unquantized: the model has {listed}"


def test_side_by_side() -> None:
    weights, x = [torch.randn(6, 4), torch.randn(2, 4)], torch.randn(5, 4)
    layers = [Unquantized().prepare({"weight": weight}, Epilogue(torch.float32), RowsHint(64)) for weight in weights]
    both, apart = SideBySide(tuple(layers)), torch.cat([layer(x) for layer in layers], 1)
    times, plus = torch.randn(5, 8), torch.randn(5, 8)
    cases: list[tuple[Tensor, Tensor]] = [
        (both(x), apart),
        (both(x, times), apart * times),
        (both(x, plus=plus), apart + plus),
        (both(x, times, plus), apart * times + plus),
    ]
    for ours, expected in cases:
        assert torch.equal(ours, expected)
