"""A persistent map from whole numbers to values: a radix trie that copies only the path to what it changes.

Old versions stay valid and share the rest, so forks need no copy; depth is bounded by the width of the keys,
not by how many there are. Knows no rule.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")

_BITS = 4
_FANOUT = 1 << _BITS


@dataclass(frozen=True, slots=True)
class Leaf(Generic[V]):
    """One entry; `key` is what the path here has not consumed of it."""

    key: int
    value: V


@dataclass(frozen=True, slots=True)
class Branch(Generic[V]):
    """One map per value of the key's lowest bits."""

    slots: tuple["Map[V]", ...]


Map = Leaf[V] | Branch[V] | None


def put(node: Map[V], key: int, value: V) -> Map[V]:
    """The map with `key` (not negative) set to `value`; `node` is left as it was."""
    if node is None or (isinstance(node, Leaf) and node.key == key):
        return Leaf(key, value)
    slots = node.slots if isinstance(node, Branch) else _pushed_down(node)
    slot = key % _FANOUT
    return Branch((*slots[:slot], put(slots[slot], key >> _BITS, value), *slots[slot + 1 :]))


def get(node: Map[V], key: int) -> V | None:
    """The value of `key`, None where it has none."""
    while isinstance(node, Branch):
        node, key = node.slots[key % _FANOUT], key >> _BITS
    return node.value if node is not None and node.key == key else None


def _pushed_down(leaf: Leaf[V]) -> tuple[Map[V], ...]:
    lower = Leaf(leaf.key >> _BITS, leaf.value)
    return tuple(lower if slot == leaf.key % _FANOUT else None for slot in range(_FANOUT))
