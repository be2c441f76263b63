"""Blocks of the KV pool: who holds which. BlockPool counts references, a BlockTable lists one sequence's blocks.

Owns physical block ids and nothing behind them. Block 0 is never handed out: padded rows write there.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

IDLE_SHARE = 32
"""One in so many of the pool's blocks may be kept for later however few are in use."""


class OutOfBlocksError(Exception):
    """Fewer blocks are free than asked for; nothing was taken. The scheduler makes room or waits."""


class BlockPool:
    """Physical blocks 1..num_blocks-1 with reference counts.

    free list ──allocate──▶ count 1 ──retain──▶ count 2, 3 … ──release──▶ … 0 ──▶ free list

    Blocks whose content is worth keeping are free as well when nobody holds them, but are allocated after all others,
    the first released first, and `on_loss` hears of it; until then `retain` takes them back. There are no more of them
    than blocks have been in use at once, or than a small share of the pool: memory that was never touched costs far
    more to take.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._counts = [0] * num_blocks
        self._free = list(range(num_blocks - 1, 0, -1))
        self._kept: set[int] = set()
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._most_in_use = num_blocks // IDLE_SHARE
        self.on_loss: Callable[[int], None] = self._kept.discard

    @property
    def free(self) -> int:
        """Blocks that can be allocated."""
        return len(self._free) + len(self._idle)

    @property
    def capacity(self) -> int:
        """Blocks there are in all, block 0 aside."""
        return self.num_blocks - 1

    def count(self, block: int) -> int:
        """References to a block; 0 when it is free."""
        return self._counts[block]

    def allocate(self, n: int) -> list[int]:
        """Take n free blocks, each with one reference; all or nothing (OutOfBlocksError)."""
        if n > self.free:
            raise OutOfBlocksError(f"{n} blocks wanted, {self.free} free")
        while len(self._free) < n:
            self._lose()
        taken = [self._free.pop() for _ in range(n)]
        for block in taken:
            self._counts[block] = 1
        self._most_in_use = max(self._most_in_use, self.capacity - self.free)
        return taken

    def retain(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block, which must be in use or kept."""
        for block in blocks:
            assert self._counts[block] > 0 or block in self._idle, f"block {block} is free"
            self._counts[block] += 1
            self._idle.pop(block, None)

    def release(self, blocks: Iterable[int]) -> None:
        """Drop a reference to each block; the last one frees it."""
        for block in blocks:
            assert self._counts[block] > 0, f"block {block} is free"
            self._counts[block] -= 1
            if self._counts[block] == 0:
                self._set_free(block)

    def keep(self, blocks: Iterable[int]) -> None:
        """Blocks in use are worth keeping from now on."""
        self._kept.update(blocks)

    def give_up(self, blocks: Iterable[int]) -> None:
        """Blocks are not worth keeping any more."""
        for block in blocks:
            self._kept.discard(block)
            if block in self._idle:
                del self._idle[block]
                self._free.append(block)

    def _set_free(self, block: int) -> None:
        if block not in self._kept:
            self._free.append(block)
            return
        self._idle[block] = None
        if len(self._idle) > self._most_in_use:
            self._lose()

    def _lose(self) -> None:
        """Give up the kept block that was released first."""
        block = next(iter(self._idle))
        self.give_up([block])
        self.on_loss(block)


class BlockTable:
    """The blocks of one sequence, or of one encoder input: logical block i is `slabs` physical blocks.

    `blocks` is flat: logical block i occupies entries [i * slabs, (i + 1) * slabs).
    """

    def __init__(self, pool: BlockPool, block_size: int, slabs: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._slabs = slabs
        self.blocks: list[int] = []

    def logical(self, at: int) -> list[int]:
        """Physical blocks of logical block `at`; none past the end."""
        return self.blocks[at * self._slabs : (at + 1) * self._slabs]

    def adopt(self, blocks: Iterable[int]) -> None:
        """Append blocks that are in use or kept."""
        blocks = list(blocks)
        self._pool.retain(blocks)
        self.blocks += blocks

    def missing(self, tokens: int) -> int:
        """Physical blocks still to be allocated before the table holds `tokens` tokens."""
        return max(0, -(-tokens // self._block_size) * self._slabs - len(self.blocks))

    def grow(self, tokens: int) -> None:
        """Allocate until the table holds `tokens` tokens; all or nothing (OutOfBlocksError)."""
        if missing := self.missing(tokens):
            self.blocks += self._pool.allocate(missing)

    def fork(self) -> "BlockTable":
        """A second table over the same blocks."""
        child = BlockTable(self._pool, self._block_size, self._slabs)
        child.blocks = list(self.blocks)
        self._pool.retain(child.blocks)
        return child

    def shared(self, position: int) -> bool:
        """Whether writing at `position` would be seen by another table."""
        block = self.logical(position // self._block_size)
        return bool(block) and self._pool.count(block[0]) > 1

    def needed(self, start: int, end: int) -> int:
        """Physical blocks to be allocated before positions [start, end) can be written; no later block is shared."""
        return self.missing(end) + self._slabs * self.shared(start)

    def make_writable(self, start: int, end: int) -> list[tuple[int, int]]:
        """Make the blocks of [start, end) the table's own; returns (source, destination) copies (OutOfBlocksError)."""
        copies = self._unshare(start) if self.shared(start) else []
        self.grow(end)
        return copies

    def truncate(self, tokens: int) -> None:
        """Release the blocks past those that hold `tokens` tokens."""
        keep = -(-tokens // self._block_size) * self._slabs
        self._pool.release(reversed(self.blocks[keep:]))  # of kept ones, those that others build on are lost last
        del self.blocks[keep:]

    def clear(self) -> None:
        """Release every block."""
        self.truncate(0)

    def _unshare(self, position: int) -> list[tuple[int, int]]:
        old = self.logical(position // self._block_size)
        new = self._pool.allocate(len(old))
        first = position // self._block_size * self._slabs
        self.blocks[first : first + self._slabs] = new
        self._pool.release(old)
        return list(zip(old, new, strict=True))
