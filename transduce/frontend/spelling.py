"""What the tokens of a transformers tokenizer spell, as a Vocabulary.

Owns how each kind of tokenizer is asked: byte-level ones by their alphabet, others by what they make of a token
between two others and at the beginning. Knows no grammar.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transduce.rules.vocabulary import Vocabulary

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_BYTE = re.compile("<0x([0-9A-F]{2})>")

Join = Callable[[Sequence[Sequence[str]]], list[str]]
"""Lists of tokens to the text of each."""


def vocabulary(tokenizer: Any, size: int, eos: Sequence[int]) -> Vocabulary:
    """What ids in [0, size) spell; ids that the tokenizer lacks, and special tokens, nothing."""
    hidden = _hidden(tokenizer)
    pieces = {id_: piece for id_, piece in _pieces(tokenizer).items() if id_ < size and id_ not in hidden}
    within, first = _forms(tokenizer, pieces)
    tokens = [within.get(id_, b"") for id_ in range(size)]
    return Vocabulary.of(tokens, {id_: form for id_, form in first.items() if form != within[id_]}, eos)


def _pieces(tokenizer: Any) -> Mapping[int, str]:
    """The decoder's tokens by id: Marian's sides may have vocabularies of their own."""
    from transformers import MarianTokenizer

    if isinstance(tokenizer, MarianTokenizer):
        return dict(tokenizer.decoder)
    return {id_: piece for piece, id_ in tokenizer.get_vocab().items()}


def _hidden(tokenizer: Any) -> set[int]:
    """Tokens that answers are shown without."""
    added = [id_ for id_ in tokenizer.added_tokens_decoder if not tokenizer.decode([id_], skip_special_tokens=True)]
    return {*tokenizer.all_special_ids, *added}


def _forms(tokenizer: Any, pieces: Mapping[int, str]) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """What each token spells within a text, and at its beginning."""
    alphabet = _alphabet(tokenizer)
    if alphabet is not None:
        spelled = {id_: _by_alphabet(piece, alphabet) for id_, piece in pieces.items()}
        return spelled, spelled
    join = _join(tokenizer)
    tokens = [*pieces.values()]
    anchor, start, end = _anchor(join, tokens)
    within = join([[anchor, token, anchor] for token in tokens])
    first = join([[token, anchor] for token in tokens])
    return (
        {
            id_: _bytes(text[len(start) : -len(end)], piece)
            for text, (id_, piece) in zip(within, pieces.items(), strict=True)
        },
        {id_: _bytes(text[: -len(end)], piece) for text, (id_, piece) in zip(first, pieces.items(), strict=True)},
    )


def _alphabet(tokenizer: Any) -> Mapping[str, int] | None:
    """The characters that stand for bytes in the tokens of a byte-level tokenizer; None: it is none."""
    from transformers import ByT5Tokenizer

    if isinstance(tokenizer, ByT5Tokenizer):
        return {chr(byte): byte for byte in range(256)}
    if tokenizer.is_fast and b'"ByteLevel"' in _decoder(tokenizer):
        shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in shown]
        return {chr(byte): byte for byte in shown} | {chr(0x100 + at): byte for at, byte in enumerate(others)}
    return None


def _decoder(tokenizer: Any) -> bytes:
    """The settings of a fast tokenizer's decoder, as JSON."""
    decoder = tokenizer.backend_tokenizer.decoder
    settings: bytes = b"" if decoder is None else decoder.__getstate__()
    return settings


def _by_alphabet(piece: str, alphabet: Mapping[str, int]) -> bytes:
    if all(character in alphabet for character in piece):
        return bytes(alphabet[character] for character in piece)
    return piece.encode()


def _join(tokenizer: Any) -> Join:
    if not tokenizer.is_fast:
        return lambda lists: [tokenizer.convert_tokens_to_string([*tokens]) for tokens in lists]
    backend = tokenizer.backend_tokenizer

    def join(lists: Sequence[Sequence[str]]) -> list[str]:
        ids = [[backend.token_to_id(token) for token in tokens] for tokens in lists]
        texts: list[str] = backend.decode_batch(ids, skip_special_tokens=False)
        return texts

    return join


def _anchor(join: Join, tokens: Sequence[str]) -> tuple[str, str, str]:
    """A token to stand beside others, what it spells at the beginning, and what at the end."""
    for token in tokens:
        start, twice = join([[token], [token, token]])
        if start.strip() and REPLACEMENT not in start and len(twice) > len(start):
            return token, start, twice[len(start) :]
    raise AssertionError("no token spells anything")


def _bytes(text: str, piece: str) -> bytes:
    """What a token is by itself: part of a character has no text."""
    byte = _BYTE.fullmatch(piece) if REPLACEMENT in text else None
    return text.encode() if byte is None else bytes([int(byte[1], 16)])
