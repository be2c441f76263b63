"""Decoder prefixes by content: which blocks hold the self-attention KV of which tokens, after which others.

Owns the keys of full blocks, each a digest of its tokens, of what they see of the encoder inputs, and of the key
before. Knows no plan. Only requests with a prompt of more than a block take part: others would find nothing.

    in use, full ──keep──▶ findable ──last table leaves──▶ free, still findable ──reused──▶ in use
                                                                 └── allocated anew: forgotten
"""

from array import array
from hashlib import blake2b

from transduce.core.blocks import BlockPool
from transduce.core.request import Request
from transduce.core.sequence import Group, Sequence


class PrefixCache:
    """queries: decoder tokens of prompts that were looked for; hits: those of them that were found."""

    def __init__(self, pool: BlockPool, block_size: int, slabs: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._slabs = slabs
        self._blocks: dict[bytes, list[int]] = {}
        self._keys: dict[int, bytes] = {}
        self.queries = 0
        self.hits = 0
        pool.on_loss = self._lose

    def reuse(self, group: Group) -> None:
        """Give a group's first sequence, which has no pages, those that hold its tokens already, but for its last one.

        Where several go on from a common prefix, that is looked for; of a prompt to be scored, what comes before. Where
        attention is asked for, all is computed that has not been told, and whatever the rules have not been shown.
        """
        request, sequence = group.request, group.live[0]
        if not self._takes_part(request):
            return
        most = group.prefix if len(group.live) > 1 else len(sequence.tokens) - 1
        if request.scored is not None and group.scored < len(request.targets):
            most = request.scored.start - 1 + group.scored
        if request.attention is not None:
            most = min(most, group.attended)
        if group.started:
            most = min(most, sequence.shown)
        for at in range(most // self._block_size):
            blocks = self._blocks.get(self._key(request, sequence, at))
            if blocks is None:
                return
            sequence.table.adopt(blocks)
            sequence.kept += 1
            sequence.computed += self._block_size

    def count(self, group: Group) -> None:
        """A group starts with what was found of its prompt."""
        if self._takes_part(group.request):
            self.queries += len(group.request.prompt)
            self.hits += group.live[0].computed

    def keep(self, request: Request, sequence: Sequence) -> None:
        """Make a sequence's full blocks findable. Blocks that hold what others hold already are not."""
        if not self._takes_part(request):
            return
        for at in range(sequence.kept, sequence.computed // self._block_size):
            sequence.kept += 1
            key = self._key(request, sequence, at)
            if key not in self._blocks:
                self._blocks[key] = sequence.table.logical(at)
                self._keys |= dict.fromkeys(self._blocks[key], key)
                self._pool.keep(self._blocks[key])

    def _takes_part(self, request: Request) -> bool:
        return len(request.prompt) > self._block_size

    def _key(self, request: Request, sequence: Sequence, at: int) -> bytes:
        """The key of a sequence's block, remembered by the sequence; blocks are asked for in order."""
        if at == len(sequence.keys):
            start = at * self._block_size
            digest = blake2b(sequence.keys[-1] if at else b"", digest_size=16)
            digest.update(array("q", sequence.tokens[start : start + self._block_size]))
            for length, span in request.seen(start, self._block_size):
                key, rows = (request.inputs[span.source].key, span.rows) if span and span.rows else (b"", 0)
                digest.update(array("q", (length, rows, len(key))))
                digest.update(key)
            sequence.keys.append(digest.digest())
        return sequence.keys[at]

    def _lose(self, block: int) -> None:
        """A block is being overwritten: the logical block that it belongs to is no more."""
        blocks = self._blocks.pop(self._keys[block])
        for each in blocks:
            del self._keys[each]
        self._pool.give_up(each for each in blocks if each != block)
