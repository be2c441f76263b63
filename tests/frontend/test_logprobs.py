"""What tokens are called in tables of log-probabilities: joined, the names are the text."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.frontend.fakes import ByteTokenizer
from tests.frontend.test_detokenizer import TOKENIZERS
from transduce.core.output import TokenLogprobs
from transduce.frontend.detokenizer import REPLACEMENT
from transduce.frontend.logprobs import Tables


def names(decode: Any, ids: list[int], others: tuple[int, ...] = ()) -> list[list[str | None]]:
    """Of each position, the name of the token that stands there, and of the others."""
    tables = Tables(decode)
    top = tuple((token, -2.0) for token in others)
    tables.extend([TokenLogprobs(token, -1.0, top) for token in ids[:1]], last=False)
    tables.extend([TokenLogprobs(token, -1.0, top) for token in ids[1:]], last=True)
    return [
        [table[token].decoded_token for token in (stands, *others)]
        for table, stands in zip(tables.made, ids, strict=True)
    ]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("name", ["byte-level", "sentencepiece"])
@given(data=st.data())
def test_joined_names_are_the_text(name: str, skip: bool, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), min_size=2, max_size=20))
    decode = partial(tokenizer.decode, skip_special_tokens=skip)
    assert "".join(str(position[0]) for position in names(decode, ids)) == decode(ids)


def test_a_word_has_its_space_but_at_the_beginning() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    word, within = (tokenizer.get_vocab()[piece] for piece in ("▁w", "w"))
    assert names(tokenizer.decode, [word, word, within], (within, word)) == [
        ["w", "w", "w"],
        [" w", "w", " w"],
        ["w", "w", " w"],
    ]


def test_a_character_is_the_name_of_its_last_byte() -> None:
    tokenizer = ByteTokenizer()
    a, first, last, _, other = tokenizer("aéê", add_special_tokens=False)["input_ids"]
    assert names(tokenizer.decode, [a, first, last], (other,)) == [["a", ""], ["", ""], ["é", "ê"]]
    assert names(tokenizer.decode, [a, first]) == [["a"], [REPLACEMENT]]


def test_without_a_tokenizer_there_are_no_names() -> None:
    assert names(None, [4, 5], (6,)) == [[None, None], [None, None]]
