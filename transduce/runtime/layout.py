"""How decoder layers share one pool of physical blocks, and how many blocks memory holds.

A physical block is `depth` layers deep, depth being the greatest common divisor of the groups' layer counts; one
logical block of a group is layers / depth physical blocks, its slabs. Layer l lives at depth index l % depth, slab
l // depth.
Owns the cache tensors. Knows no block table.
"""

from math import gcd

import torch
from torch import Tensor

from transduce.attention.base import AttentionBackend
from transduce.layers.kv import KVSlot
from transduce.models.base import Spec


class KVLayout:
    """The pool's caches, one per depth index, and the KVSlot of each layer."""

    def __init__(self, spec: Spec, backend: AttentionBackend, block_size: int, dtype: torch.dtype) -> None:
        self._backend = backend
        self._shape = (spec.kv_heads, spec.head_dim, block_size, dtype)
        self.block_size = block_size
        self.depth = gcd(*(group.layers for group in spec.groups))
        self._layers = {group.name: group.layers for group in spec.groups}
        self.slots = {
            group.name: [KVSlot(layer % self.depth, layer // self.depth) for layer in range(group.layers)]
            for group in spec.groups
        }
        self.caches: list[Tensor] = []

    def slot(self, group: str, layer: int) -> KVSlot:
        """Where a decoder layer's KV lives."""
        return self.slots[group][layer]

    def slabs(self, group: str) -> int:
        """Physical blocks per logical block of a group."""
        return self._layers[group] // self.depth

    @property
    def all_slabs(self) -> dict[str, int]:
        """`slabs` of every group."""
        return {group: self.slabs(group) for group in self._layers}

    @property
    def block_bytes(self) -> int:
        """Bytes of one physical block."""
        return self._backend.block_bytes(self.depth, *self._shape)

    def allocate(self, blocks: int, device: torch.device) -> None:
        """Allocate the caches and bind every layer to its own."""
        kv_heads, head_dim, block_size, dtype = self._shape
        self.caches = [
            self._backend.cache(blocks, kv_heads, head_dim, block_size, dtype, device) for _ in range(self.depth)
        ]
        for slot in (slot for slots in self.slots.values() for slot in slots):
            slot.bound = self.caches[slot.depth_index]

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """Copy whole physical blocks (source, destination), all layers of them."""
        self._backend.copy(self.caches, pairs)
