"""The measure of repetitive text."""

import pytest

from transduce.speech.segments import compression_ratio


def test_repetition_compresses() -> None:
    assert (
        compression_ratio("thank you. " * 40) > 2.4 > compression_ratio(" The quick brown fox jumps over a lazy dog.")
    )


@pytest.mark.parametrize(("text", "size"), [("", 0), ("a", 1), ("é", 2), ("字", 3)])
def test_bytes_are_counted_and_nothing_has_none(text: str, size: int) -> None:
    assert compression_ratio(text) == size / (8 + size)  # zlib keeps so little as it is, in 8 bytes more
