"""How much fits: the bounds of a step, and what a request takes of the pool at its longest.

Owns the arithmetic from tokens and rows to physical blocks. Knows no sequence and allocates nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from transduce.core.request import Request
from transduce.errors import CapacityError

Room = Callable[[int, int, int], int]
"""(decoder prompt tokens, encoder rows, hypotheses) to the most new tokens that the KV pool holds."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """Bounds of a step and of the pool.

    max_num_seqs: hypotheses running at once. max_num_batched_tokens: decoder tokens per step.
    max_encode_tokens: encoder rows computed per step; an item larger than that runs as its step's only one.
    self_slabs, cross_slabs: physical blocks per logical block of the two KV groups.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_encode_tokens: int
    block_size: int = 16
    self_slabs: int = 1
    cross_slabs: int = 1

    def self_blocks(self, tokens: int) -> int:
        """Physical blocks that hold `tokens` tokens of one sequence."""
        return -(-tokens // self.block_size) * self.self_slabs

    def cross_blocks(self, rows: int) -> int:
        """Physical blocks that hold `rows` rows of one encoder input."""
        return -(-rows // self.block_size) * self.cross_slabs


def room(budgets: Budgets, capacity: int, prompt: int, rows: int, width: int) -> int:
    """Most new tokens per hypothesis that `capacity` blocks hold for so many prompt tokens and encoder rows.

    The last new token needs no page: nothing follows it.
    """
    return _room(budgets, capacity - budgets.cross_blocks(rows), prompt, width)


def _room(budgets: Budgets, blocks: int, prompt: int, width: int) -> int:
    tokens = max(0, blocks) // (width * budgets.self_slabs) * budgets.block_size
    return max(0, tokens - prompt + 1)


def refuse_if_too_large(budgets: Budgets, capacity: int, request: Request) -> None:
    """Raise CapacityError, with the numbers, if the pool could never hold the request; sharing is not counted on."""
    width, prompt = request.width, len(request.prompt)
    assert width <= budgets.max_num_seqs, "whoever knows what asks for so many has refused it"
    cross = sum(budgets.cross_blocks(source.rows) for source in request.inputs)
    tokens = prompt + request.stopping.max_tokens - 1
    blocks = cross + width * budgets.self_blocks(tokens)
    if blocks > capacity:
        most = _room(budgets, capacity - cross, prompt, width)
        way_out = f"lower max_tokens to {most}" if most else "shorten the input"
        raise CapacityError(
            f"the request needs {blocks} KV blocks ({cross} for its encoder input, {width} x {tokens} decoder tokens) "
            f"and the pool has {capacity}: {way_out}, or give the KV cache more memory"
        )
