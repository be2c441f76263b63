"""Where a layer's keys and values live: one slab of the shared pool's cache.

Layers hold a KVSlot from the time they are built; runtime/layout.py binds the cache once memory has been measured.
"""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(slots=True, eq=False)
class KVSlot:
    """One decoder layer's place in the pool: `cache` is its depth index's view, `slab` picks the physical block."""

    depth_index: int
    slab: int
    bound: Tensor | None = field(default=None, repr=False)

    @property
    def cache(self) -> Tensor:
        """The backend's cache tensor of this depth index."""
        assert self.bound is not None, "the KV cache is read before it was allocated"
        return self.bound
