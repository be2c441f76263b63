"""Parts of a recording of which little is held."""

from collections.abc import Iterator

import numpy as np
import pytest

from transduce.media.audio import Samples
from transduce.media.tape import Reel, Tape

PIECE, COUNT, BESIDE = 10, 50, 3


class Source:
    """Pieces whose samples are their own numbers. begun: how often they were."""

    def __init__(self) -> None:
        self.begun = 0

    def __call__(self) -> Iterator[Samples]:
        self.begun += 1
        for number in range(COUNT):
            yield np.arange(number * PIECE, (number + 1) * PIECE, dtype=np.float32)


@pytest.mark.parametrize(("start", "stop"), [(0, 25), (2, 30), (200, 225), (COUNT * PIECE - 25, COUNT * PIECE)])
def test_an_excerpt_has_samples_around_its_edges_but_for_the_recordings_ends(start: int, stop: int) -> None:
    excerpt = Reel(Source(), 1.5, BESIDE).excerpt(start, stop)
    assert excerpt.level == 1.5
    assert [*excerpt.recording[excerpt.start : excerpt.stop]] == [*range(start, stop)]
    assert [*excerpt.recording] == [*range(max(0, start - BESIDE), min(COUNT * PIECE, stop + BESIDE))]


def test_what_was_forgotten_is_decoded_again_and_nothing_else() -> None:
    source = Source()
    reel = Reel(source, 0.0, BESIDE)
    for start in (0, 20, 20, 15, 300):
        reel.excerpt(start, start + 25)
    assert source.begun == 1
    assert reel.excerpt(20, 45).recording[BESIDE] == 20
    assert source.begun == 2


def test_a_tape_holds_what_is_still_wanted() -> None:
    tape = Tape()
    for number, _ in enumerate(tape.record(Source()()), 1):
        tape.forget(number * PIECE - 25)
        assert tape.end - tape.start <= 25 + PIECE
    assert [*tape.part(tape.end - 5, tape.end + 5)] == [*range(tape.end - 5, tape.end)]
