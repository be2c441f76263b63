"""Encoder outputs by content: which cross block table holds which encoder input's KV, and who uses it.

Owns the entries and their cross tables. Knows nothing of what is encoded, nor when: the scheduler plans the items.

    acquire ──▶ pending ──all items written──▶ ready ──last user leaves──▶ idle (LRU) ──pressure──▶ evicted
                   └── last user leaves before it is written: dropped at once

Idle entries take no more blocks than have been in use at once, or a small share of the pool: memory that was never
touched costs far more to take than the blocks of an entry that nobody may ask for again.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from transduce.core.blocks import IDLE_SHARE, BlockPool, BlockTable
from transduce.core.request import EncoderInput


@dataclass(slots=True, eq=False)
class Entry:
    """One encoder input's place in the pool. planned, written: how many of its items are in a plan, and committed."""

    source: EncoderInput
    table: BlockTable
    table_id: int
    users: int = 1
    planned: int = 0
    written: int = 0

    @property
    def ready(self) -> bool:
        """Whether every item's KV is written."""
        return self.written == len(self.source.items)

    @property
    def readable(self) -> bool:
        """Whether every item's KV is written, or will be before the planned step's decoder runs."""
        return self.planned == len(self.source.items)


class EncoderCache:
    """Content key to Entry. `queries` counts inputs asked for, `hits` those of them that needed no encoding,
    `lease_evictions` leased entries evicted.

    A lease is on the key, across requests: an idle entry with leases is evicted only after all others, and one
    encoded again is as good as the first.
    """

    def __init__(self, pool: BlockPool, block_size: int, slabs: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._slabs = slabs
        self._entries: dict[bytes, Entry] = {}
        self._idle: OrderedDict[bytes, Entry] = OrderedDict()
        self._leases: Counter[bytes] = Counter()
        self._tables = 0
        self._blocks = 0
        self._idle_blocks = 0
        self._most_in_use = 0
        self.queries = 0
        self.hits = 0
        self.lease_evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def blocks(self) -> int:
        """Blocks that entries hold, idle or not."""
        return self._blocks

    @property
    def usage(self) -> float:
        """Share of the pool, of 1, that entries in use take; those kept in case they come again are free."""
        return (self._blocks - self._idle_blocks) / self._pool.capacity

    @property
    def leased(self) -> int:
        """Keys that have leases."""
        return len(self._leases)

    def find(self, key: bytes) -> Entry | None:
        """The entry for a key, pending, in use or idle."""
        return self._entries.get(key)

    def missing(self, sources: Iterable[EncoderInput]) -> list[EncoderInput]:
        """Those that have no entry, equal ones once."""
        return list({source.key: source for source in sources if source.key not in self._entries}.values())

    def acquire(self, source: EncoderInput) -> Entry:
        """Become a user of the input's entry; a new one is pending with its blocks allocated (OutOfBlocksError)."""
        self.queries += 1
        entry = self._entries.get(source.key)
        if entry is not None:
            self.hits += 1
            entry.users += 1
            self._wake(entry)
            return entry
        table = BlockTable(self._pool, self._block_size, self._slabs)
        table.grow(source.rows)
        self._blocks += len(table.blocks)
        self._tables += 1
        entry = self._entries[source.key] = Entry(source, table, self._tables)
        return entry

    def release(self, entry: Entry) -> None:
        """Stop using an entry. Unused, it stays findable if it is written, else it is dropped."""
        assert entry.users > 0
        entry.users -= 1
        if entry.users:
            return
        if entry.ready:
            self._retire(entry)
        else:
            self._drop(entry)

    def hold(self, key: bytes) -> bool:
        """Lease a findable entry; False, and no lease, when there is none."""
        findable = key in self._entries
        if findable:
            self._leases[key] += 1
        return findable

    def unhold(self, key: bytes) -> None:
        """Give a lease back, whether or not pressure has taken the entry meanwhile."""
        assert self._leases[key] > 0, "no such lease"
        self._leases[key] -= 1
        if not self._leases[key]:
            del self._leases[key]

    def evictable(self, keep: frozenset[bytes] = frozenset()) -> int:
        """Blocks that idle entries hold, those in `keep` aside."""
        return sum(len(e.table.blocks) for key, e in self._idle.items() if key not in keep)

    def evict(self, free: int, keep: frozenset[bytes] = frozenset()) -> bool:
        """Drop idle entries, unleased and least recently used first, until `free` blocks are free; whether they are."""
        if self._pool.free >= free:
            return True
        order = sorted((key for key in self._idle if key not in keep), key=lambda key: key in self._leases)
        for key in order:
            self.lease_evictions += key in self._leases
            self._drop(self._idle[key])
            if self._pool.free >= free:
                return True
        return False

    def _retire(self, entry: Entry) -> None:
        in_use = self._pool.capacity - self._pool.free - self._idle_blocks
        self._most_in_use = max(self._most_in_use, in_use)
        self._idle[entry.source.key] = entry
        self._idle_blocks += len(entry.table.blocks)
        for key in [key for key in self._idle if key not in self._leases]:
            if self._idle_blocks <= max(self._most_in_use, self._pool.capacity // IDLE_SHARE):
                return
            self._drop(self._idle[key])

    def _wake(self, entry: Entry) -> None:
        if self._idle.pop(entry.source.key, None) is not None:
            self._idle_blocks -= len(entry.table.blocks)

    def _drop(self, entry: Entry) -> None:
        del self._entries[entry.source.key]
        self._wake(entry)
        self._blocks -= len(entry.table.blocks)
        entry.table.clear()
