"""Nougat's pages, repaired without a corpus of words, and what one would change."""

from types import SimpleNamespace

import nltk  # type: ignore[import-untyped]
import pytest
from transformers import NougatTokenizer

from transduce.errors import ConfigError
from transduce.models.vision_encoder_decoder.markup import repaired

LINE = "the same words again and again, "

PAGES = {
    "# 1 Results\n\nIt ends.": "\n\n# 1 Results\n\nIt ends.\n\n",
    "It went on to the hous": "It went on to the hous ",
    "It went on to the house": "It went on to the house ",
    f"It said {LINE * 8}": "It said ",
    "# Method\n\n## ": "\n\n# Method\n\n",
    "\\begin{table} \\begin{tabular}{l} a \\\\ \\end{tabular} \\end{table}": (
        "\n\n\\begin{table}\n\\begin{tabular}{l} a \\\\ \\end{tabular}\n\\end{table}\n\n"
    ),
}


@pytest.mark.parametrize(("page", "expected"), PAGES.items(), ids=repr)
def test_pages_are_repaired_without_a_corpus(page: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [])
    assert repaired(page) == expected


def test_a_corpus_would_only_tell_broken_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind which transformers then puts no space, so that the next page goes on with the word."""
    monkeypatch.setattr(nltk.data, "path", [])
    without = {page: repaired(page) for page in PAGES}
    monkeypatch.setattr(nltk.corpus, "words", SimpleNamespace(words=lambda: ["house", "said"]))
    differing = {page: repaired(page) for page in PAGES if repaired(page) != without[page]}
    assert differing == {"It went on to the hous": "It went on to the hous"}


def test_what_repairs_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> str:
        raise ImportError("no nltk")

    monkeypatch.setattr(NougatTokenizer, "post_process_generation", lacking)
    with pytest.raises(ConfigError, match=r'needs nltk and levenshtein; pip install "transduce\[ocr\]"'):
        repaired("a page")
