"""What a forward pass is given: the tensors of one decoder step, and the packed items of one encoder pass.

Filled by runtime/inputs.py. Knows no scheduler; every tensor keeps its address from step to step.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from transduce.attention.base import Meta


@dataclass(frozen=True, slots=True, eq=False)
class GroupStep:
    """One KV group's share of a step: the backend's meta, and where this step's own K and V go.

    slots: [slabs, tokens] int64, block * block_size + offset per slab; None for a group the decoder only reads.
    sees: [tokens, 1] bool, whether each token sees any key; None for a group in which it always sees itself.
    queries: if given, cross-attention layers add theirs [tokens, heads, head_dim], one after another.
    """

    meta: Meta
    slots: Tensor | None
    sees: Tensor | None
    queries: list[Tensor] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StepInput:
    """One decoder step. tokens, positions: [tokens] int64. groups: "self", "cross"."""

    tokens: Tensor
    positions: Tensor
    groups: Mapping[str, GroupStep]


@dataclass(frozen=True, slots=True, eq=False)
class EncoderBatch:
    """Items of one encoder pass, packed without padding.

    lengths: encoder rows of each item. tokens, positions: [rows] int64 for text, empty for other inputs.
    features: one tensor per item (Whisper: [mels, frames]), empty for text. Where an item has both, its text's rows
    follow those of its features.
    """

    lengths: tuple[int, ...]
    tokens: Tensor
    positions: Tensor
    features: tuple[Tensor, ...] = ()
