"""Vocabulary: what each token spells, in bytes, and grammars compiled over it.

Owns that a token may spell less where it begins a text: a word's leading space is not shown there. Such forms get ids
of their own above the model's, so that one mask says what may begin a text and what may go on. Knows no tokenizer.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from transduce.errors import RequestError

LIMITS = LLParserLimits(max_grammar_size=100_000, max_lexer_states=20_000, verbose_errors=False)
"""Of one grammar: some 10 ms to take a step, and some 40 MB."""

COMPILED = 32
"""Grammars that are kept."""

# The library would only allow the first token that it thinks usual, where a text is certain.
_ANY_SPELLING = '\n%llguidance {"no_forcing": true}\n'


class Vocabulary:
    """tokens: by id, what it spells within a text; empty: nothing, as special tokens.

    first: by id, what it spells at the beginning of a text, where that differs. eos: ids that end an answer.

    It is compared by identity. Pickled, it is itself again for all that are unpickled in one process.
    """

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        fields: tuple[tuple[bytes, ...], dict[int, bytes], tuple[int, ...]] = pickle.loads(packed)
        self.tokens, self.first, self.eos = fields

    @classmethod
    def of(cls, tokens: Sequence[bytes], first: Mapping[int, bytes], eos: Sequence[int]) -> "Vocabulary":
        """From its parts."""
        return cls(pickle.dumps((tuple(tokens), dict(first), tuple(eos))))

    def __reduce__(self) -> tuple[Callable[[bytes], "Vocabulary"], tuple[bytes]]:
        return _unpickled, (self._packed,)

    def text(self, ids: Sequence[int]) -> str:
        """What the ids spell, together."""
        shown = [token for token in ids if self.tokens[token]]
        start = [self.first.get(token, self.tokens[token]) for token in shown[:1]]
        return b"".join([*start, *(self.tokens[token] for token in shown[1:])]).decode(errors="replace")

    def spells(self, text: str) -> bool:
        """Whether some tokens spell the text, together."""
        whole, within = text.encode(), [form for form in self.tokens if form]
        first = [self.first.get(token, form) for token, form in enumerate(self.tokens) if form]
        ends = {len(form) for form in first if whole.startswith(form)}
        for end in range(len(whole)):
            if end in ends:
                ends |= {end + len(form) for form in within if whole.startswith(form, end)}
        return len(whole) in ends

    @cached_property
    def characters(self) -> frozenset[str] | None:
        """All that occur in tokens; None: any can be spelled, byte by byte."""
        if {*self.tokens} >= _UTF8_BYTES:
            return None
        return frozenset().union(*(token.decode(errors="ignore") for token in (*self.tokens, *self.first.values())))

    @cached_property
    def closed(self) -> bool:
        """Whether every character can also be spelled by itself, so that nothing begun lacks an end."""
        return self.characters is None or {character.encode() for character in self.characters} <= {*self.tokens}

    @cached_property
    def first_ids(self) -> npt.NDArray[np.int64]:
        """By id [tokens], the id of its form at the beginning."""
        ids = np.arange(len(self.tokens), dtype=np.int64)
        ids[[*self.first]] = len(self.tokens) + np.arange(len(self.first))
        return ids

    @cached_property
    def silent(self) -> tuple[int, ...]:
        """Tokens that spell something, but nothing at the beginning."""
        return tuple(token for token, form in self.first.items() if not form)

    @cached_property
    def tokenizer(self) -> LLTokenizer:
        """The forms as the grammar library takes them."""
        return LLTokenizer(_Table([*self.tokens, *self.first.values()], self.eos[0]), eos_token=[*self.eos])


class _Table(TokenizerWrapper):
    """Forms by id, for the grammar library."""

    def __init__(self, tokens: Sequence[bytes], eos: int) -> None:
        self.tokens = tokens
        self.eos_token_id = eos
        self.bos_token_id = None
        self.special_token_ids = ()
        self.is_tokenizer_wrapper = True

    def __call__(self, text: str) -> list[int]:
        raise AssertionError("grammars are compiled so that no usual tokens are asked for")


@lru_cache(COMPILED)
def compiled(vocabulary: Vocabulary, lark: str) -> LLMatcher:
    """A Lark grammar before any token; copy it to use it. Raises RequestError for one that cannot be."""
    matcher = LLMatcher(vocabulary.tokenizer, lark + _ANY_SPELLING, log_level=0, limits=LIMITS)
    if matcher.is_error():
        lines = matcher.get_error().splitlines()
        raise RequestError(" ".join(line for line in lines if line and line[0] not in " <"))  # the rest quotes
    return matcher


@lru_cache(4)
def _unpickled(packed: bytes) -> Vocabulary:
    return Vocabulary(packed)


_UTF8_BYTES = {bytes([byte]) for byte in range(256) if byte < 0xC0 or 0xC2 <= byte < 0xF5}
