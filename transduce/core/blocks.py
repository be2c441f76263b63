"""Blocks of the KV pool: who holds which. BlockPool counts references, a BlockTable lists one sequence's blocks.

Owns physical block ids and nothing behind them. Block 0 is never handed out: padded rows write there.
"""

from collections.abc import Iterable


class OutOfBlocksError(Exception):
    """Fewer blocks are free than asked for; nothing was taken. The scheduler makes room or waits."""


class BlockPool:
    """Physical blocks 1..num_blocks-1 with reference counts.

    free list ──allocate──▶ count 1 ──retain──▶ count 2, 3 … ──release──▶ … 0 ──▶ free list
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._counts = [0] * num_blocks
        self._free = list(range(num_blocks - 1, 0, -1))

    @property
    def free(self) -> int:
        """Blocks that can be allocated."""
        return len(self._free)

    @property
    def capacity(self) -> int:
        """Blocks there are in all, block 0 aside."""
        return self.num_blocks - 1

    def count(self, block: int) -> int:
        """References to a block; 0 when it is free."""
        return self._counts[block]

    def allocate(self, n: int) -> list[int]:
        """Take n free blocks, each with one reference; all or nothing (OutOfBlocksError)."""
        if n > len(self._free):
            raise OutOfBlocksError(f"{n} blocks wanted, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(n)]
        for block in taken:
            self._counts[block] = 1
        return taken

    def retain(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block, which must be in use."""
        for block in blocks:
            assert self._counts[block] > 0, f"block {block} is free"
            self._counts[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Drop a reference to each block; the last one frees it."""
        for block in blocks:
            assert self._counts[block] > 0, f"block {block} is free"
            self._counts[block] -= 1
            if self._counts[block] == 0:
                self._free.append(block)


class BlockTable:
    """The blocks of one sequence, or of one encoder input: logical block i is `slabs` physical blocks.

    `blocks` is flat: logical block i occupies entries [i * slabs, (i + 1) * slabs).
    """

    def __init__(self, pool: BlockPool, block_size: int, slabs: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._slabs = slabs
        self.blocks: list[int] = []

    def missing(self, tokens: int) -> int:
        """Physical blocks still to be allocated before the table holds `tokens` tokens."""
        return max(0, -(-tokens // self._block_size) * self._slabs - len(self.blocks))

    def grow(self, tokens: int) -> None:
        """Allocate until the table holds `tokens` tokens; all or nothing (OutOfBlocksError)."""
        self.blocks += self._pool.allocate(self.missing(tokens))

    def fork(self) -> "BlockTable":
        """A second table over the same blocks."""
        child = BlockTable(self._pool, self._block_size, self._slabs)
        child.blocks = list(self.blocks)
        self._pool.retain(child.blocks)
        return child

    def shared(self, position: int) -> bool:
        """Whether writing at `position` would be seen by another table."""
        block = self._logical(position)
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
        self._pool.release(self.blocks[keep:])
        del self.blocks[keep:]

    def clear(self) -> None:
        """Release every block."""
        self.truncate(0)

    def _unshare(self, position: int) -> list[tuple[int, int]]:
        old = self._logical(position)
        new = self._pool.allocate(len(old))
        first = position // self._block_size * self._slabs
        self.blocks[first : first + self._slabs] = new
        self._pool.release(old)
        return list(zip(old, new, strict=True))

    def _logical(self, position: int) -> list[int]:
        first = position // self._block_size * self._slabs
        return self.blocks[first : first + self._slabs]
