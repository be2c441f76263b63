"""What only `sdpa` has: gathers cut to size, and a grid of widths."""

import pytest
import torch

from tests.attention.batches import Heads, Span, batch
from transduce.attention import named, sdpa
from transduce.attention.base import Attend


def test_cut_gathers_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, attend = named("sdpa"), Attend(0.125, causal=True)
    spans = [Span(1, 20 + i % 30, 21 + i % 30, i) for i in range(40)] + [Span(4, 60, 64, 40 + i) for i in range(5)]
    pages = batch(backend, spans, Heads(2, 4, 64), torch.float32)
    whole, whole_lse = pages.read(backend, attend)
    for blocks in (0, 7, 30):
        monkeypatch.setattr(sdpa, "GATHER_BYTES", blocks * pages.cache[0].nbytes)
        out, lse = pages.read(backend, attend)
        assert torch.equal(out, whole)
        assert torch.equal(lse, whole_lse)


def test_widths_lie_on_a_monotone_grid() -> None:
    widths = [sdpa._grid(blocks) for blocks in range(200)]
    assert widths[:9] == [0, 1, 2, 4, 4, 8, 8, 8, 8]
    assert widths == sorted(widths)
    assert all(sdpa._grid(width) == width for width in widths)
    assert all(blocks <= width <= (1.25 if blocks > 8 else 2) * blocks for blocks, width in enumerate(widths))
    assert len(set(widths[8:129])) == 1 + 4 * 4
