"""Streams of text: joined they are the whole, and none shows half a character or part of a stop string."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.frontend.fakes import FIRST, ByteTokenizer
from transduce.frontend.detokenizer import REPLACEMENT, Detokenizer, TextStream

CORPUS = ["Hello world, it's 日本語 — naïve café 🙂 don't , ' . ! ? n't we've we're I'm"] * 3


def _trained(model: Any, trainer: Any, pre: Any, decoder: Any, cleaned: bool) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoder
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", clean_up_tokenization_spaces=cleaned)


def _byte_level() -> PreTrainedTokenizerFast:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    return _trained(
        models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel(), cleaned=False
    )


def _sentencepiece(cleaned: bool) -> PreTrainedTokenizerFast:
    trainer = trainers.UnigramTrainer(vocab_size=90, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    return _trained(models.Unigram(), trainer, pre_tokenizers.Metaspace(), decoders.Metaspace(), cleaned)


TOKENIZERS = {
    "byte-level": _byte_level(),
    "sentencepiece": _sentencepiece(cleaned=False),
    "cleaned": _sentencepiece(cleaned=True),
}


def _pieces(decode: Any, ids: Sequence[int], cleaned: bool) -> list[str]:
    stream = TextStream(decode, cleaned=cleaned)
    return [*(stream.push(token) for token in ids), stream.flush()]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_joined_pieces_are_the_whole(name: str, skip: bool, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=30))
    decode = partial(tokenizer.decode, skip_special_tokens=skip)
    assert "".join(_pieces(decode, ids, tokenizer.clean_up_tokenization_spaces)) == decode(ids)


@given(text=st.text(max_size=20))
def test_no_piece_holds_half_a_character(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    pieces = _pieces(partial(tokenizer.decode, skip_special_tokens=True), ids, cleaned=False)
    assert "".join(pieces) == text
    assert all(REPLACEMENT not in piece for piece in pieces) or REPLACEMENT in text


def test_text_comes_as_soon_as_it_is_whole() -> None:
    tokenizer = ByteTokenizer()
    assert _pieces(tokenizer.decode, tokenizer("aé!", add_special_tokens=False)["input_ids"], cleaned=False) == [
        "a",
        "",
        "é",
        "!",
        "",
    ]


def test_cleaned_text_is_held_while_it_may_change() -> None:
    tokenizer = TOKENIZERS["cleaned"]
    ids = tokenizer("do n't", add_special_tokens=False)["input_ids"]
    pieces = _pieces(tokenizer.decode, ids, cleaned=True)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert " n't" not in "".join(pieces)


def _stopped(text: str, *stops: str, include: bool = False, least: int = 0) -> Detokenizer:
    detokenizer = Detokenizer(ByteTokenizer().decode, stops, include=include, least=least)
    detokenizer.push(FIRST + byte for byte in text.encode())
    detokenizer.flush()
    return detokenizer


@pytest.mark.parametrize(("include", "text"), [(False, "one "), (True, "one two")])
def test_a_stop_string_ends_the_text_across_tokens(include: bool, text: str) -> None:
    stopped = _stopped("one two three", "two", include=include)
    assert (stopped.text, stopped.stop, stopped.kept) == (text, "two", len("one two"))


def test_the_first_of_several_stop_strings_counts() -> None:
    stopped = _stopped("one two three", "three", "tw")
    assert (stopped.text, stopped.stop) == ("one ", "tw")


def test_a_stop_string_within_the_least_tokens_does_not_count() -> None:
    stopped = _stopped("stop and stop", "stop", least=4)
    assert (stopped.text, stopped.kept) == ("stop and ", len("stop and stop"))


def test_text_without_a_stop_string_is_whole() -> None:
    stopped = _stopped("one two", "three")
    assert (stopped.text, stopped.stop, stopped.kept) == ("one two", None, 7)


@given(text=st.text("ab", max_size=12), stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_shown_text_never_holds_part_of_the_stop_string(text: str, stops: list[str]) -> None:
    detokenizer = Detokenizer(ByteTokenizer().decode, stops)
    shown = [detokenizer.push([FIRST + byte]) for byte in text.encode()]
    assert "".join([*shown, detokenizer.flush()]) == detokenizer.text
    assert text.startswith(detokenizer.text)
    if detokenizer.stop is None:
        assert detokenizer.text == text
        assert not any(stop in text for stop in stops)
    else:
        assert text[: detokenizer.kept].endswith(detokenizer.stop)
        assert not any(stop in text[: detokenizer.kept - 1] for stop in stops)
