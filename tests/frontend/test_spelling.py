"""What tokens spell, against what each kind of tokenizer decodes."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, ByT5Tokenizer, MarianTokenizer, PreTrainedTokenizerFast

import checkpoints
from tests.folders import byte_folder, text_folder, whisper_folder
from tests.models.tokenizers import text_tokenizer
from transduce.frontend.spelling import vocabulary
from transduce.rules.vocabulary import Vocabulary

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
TEXT = ["the cat sat on the mat and was fat", "a bat sat on a hat", "what a cat that was"]
REAL = ("bart-g2p", "annalog-marian", "whisper-tiny.en", "flan-t5-small-titler")
KINDS = ("letters", "bytes", "whisper", "words", "byt5", "fallback", "marian", *REAL)


def made(kind: str, folder: Path) -> Any:
    if kind in REAL:
        return AutoTokenizer.from_pretrained(checkpoints.path(kind))
    if kind == "letters":
        return AutoTokenizer.from_pretrained(text_folder(folder, GENERATION))
    if kind == "bytes":
        return AutoTokenizer.from_pretrained(byte_folder(folder, GENERATION))
    if kind == "whisper":
        return AutoTokenizer.from_pretrained(whisper_folder(folder, seed=0))
    if kind == "words":
        return text_tokenizer()
    if kind == "byt5":
        return ByT5Tokenizer()
    return marian(folder) if kind == "marian" else fallback()


def marian(folder: Path) -> MarianTokenizer:
    """Two sentencepiece models, and a vocabulary of its own for the target."""
    for side, size in (("source", 30), ("target", 40)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT),
            model_prefix=str(folder / side),
            vocab_size=size,
            minloglevel=2,
            hard_vocab_limit=False,
        )
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.model"))
        names = ["</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, len(pieces))), "<pad>"]
        (folder / f"{side}.json").write_text(json.dumps({name: at for at, name in enumerate(names)}))
    files = [str(folder / name) for name in ("source.model", "target.model", "source.json", "target.json")]
    with pytest.warns(UserWarning, match="sacremoses"):
        return MarianTokenizer(
            source_spm=files[0], target_spm=files[1], vocab=files[2], target_vocab_file=files[3], separate_vocabs=True
        )


def fallback() -> PreTrainedTokenizerFast:
    """Pieces, and bytes for what they lack; two spaces in one piece."""
    pieces = ["<unk>", "</s>", "▁", "▁▁", "▁the", "cat", "s", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(
        models.BPE({piece: at for at, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


def table(tokenizer: Any) -> Vocabulary:
    size = max(tokenizer.get_vocab().values()) + 9
    if isinstance(tokenizer, MarianTokenizer):
        size = max(tokenizer.decoder) + 9
    return vocabulary(tokenizer, size, [tokenizer.eos_token_id])


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_spell_what_the_tokenizer_decodes(kind: str, tmp_path: Path) -> None:
    tokenizer = made(kind, tmp_path)
    spelled = table(tokenizer)
    shown = [token for token, form in enumerate(spelled.tokens) if form]
    if kind in {"byt5", "fallback"}:  # they decode half a character together with its neighbours
        shown = [token for token in shown if spelled.tokens[token].isascii()]
    assert len(shown) > 2
    drawn = random.Random(kind)
    for _ in range(500):
        ids = drawn.choices(shown, k=drawn.randrange(1, 8))
        ours, theirs = spelled.text(ids), tokenizer.decode(ids, skip_special_tokens=True)
        if kind == "marian":  # it strips what is around an answer
            ours = ours.strip()
        assert ours == theirs, ids


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_spell_nothing(kind: str, tmp_path: Path) -> None:
    tokenizer = made(kind, tmp_path)
    spelled = table(tokenizer)
    assert {spelled.tokens[token] for token in tokenizer.all_special_ids if token < len(spelled.tokens)} == {b""}
    assert spelled.tokens[-1] == b""


@pytest.mark.parametrize("kind", ["bytes", "byt5", "fallback"])
def test_bytes_make_characters(kind: str, tmp_path: Path) -> None:
    tokenizer = made(kind, tmp_path)
    spelled = table(tokenizer)
    ids = [spelled.tokens.index(bytes([byte])) for byte in "é€😀".encode()]
    assert spelled.text(ids) == tokenizer.decode(ids, skip_special_tokens=True) == "é€😀"


@pytest.mark.parametrize(("kind", "every"), [("bytes", True), ("byt5", True), ("fallback", True), ("letters", False)])
def test_bytes_spell_every_character(kind: str, every: bool, tmp_path: Path) -> None:
    assert (table(made(kind, tmp_path)).characters is None) == every


def test_timestamps_are_not_part_of_an_answer() -> None:
    tokenizer = made("whisper-tiny.en", Path())
    assert table(tokenizer).tokens[tokenizer.convert_tokens_to_ids("<|1.00|>")] == b""
