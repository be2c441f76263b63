"""Layers of several KV groups share one pool of physical blocks."""

from dataclasses import replace

import pytest
import torch

from transduce.attention import named
from transduce.models.base import KVGroup, Spec
from transduce.runtime.layout import KVLayout

SPEC = Spec(
    vocab_size=10,
    source_vocab=10,
    target_vocab=10,
    groups=(KVGroup("self", 32), KVGroup("cross", 8)),
    heads=4,
    kv_heads=2,
    head_dim=8,
    max_source=None,
    max_target=None,
    fixed_rows=None,
    tasks=frozenset({"generate"}),
)


@pytest.fixture
def layout() -> KVLayout:
    made = KVLayout(SPEC, named("reference"), 4, torch.float32)
    made.allocate(6, torch.device("cpu"))
    return made


def test_a_block_is_as_deep_as_the_groups_have_in_common(layout: KVLayout) -> None:
    assert (layout.depth, layout.slabs("self"), layout.slabs("cross")) == (8, 4, 1)
    assert len(layout.caches) == 8
    assert layout.block_bytes == 8 * 4 * 2 * 2 * 8 * 4


def test_every_layer_has_a_place_of_its_own(layout: KVLayout) -> None:
    places = {(slot.depth_index, slot.slab) for slot in layout.slots["self"]}
    assert len(places) == 32
    assert layout.slot("self", 9).cache is layout.caches[1]
    assert layout.slot("self", 9).slab == 1
    assert layout.slot("cross", 7).cache is layout.caches[7]


def test_one_slab_each_where_the_groups_are_equal() -> None:
    spec = replace(SPEC, groups=(KVGroup("self", 6), KVGroup("cross", 6)))
    layout = KVLayout(spec, named("reference"), 4, torch.float32)
    assert (layout.depth, layout.slabs("self"), layout.slabs("cross")) == (6, 1, 1)


def test_copy_takes_all_layers_of_a_block(layout: KVLayout) -> None:
    for index, cache in enumerate(layout.caches):
        cache[2] = index + 1
    layout.copy([(2, 5)])
    assert all(bool((cache[5] == index + 1).all()) for index, cache in enumerate(layout.caches))


def test_a_cache_is_read_only_once_allocated() -> None:
    layout = KVLayout(SPEC, named("reference"), 4, torch.float32)
    with pytest.raises(AssertionError, match="before it was allocated"):
        _ = layout.slot("self", 0).cache
