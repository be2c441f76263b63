"""CTranslate2's `Translator` on static batches, each decoding to the longest output wanted in it."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import ctranslate2

from benchmarks.batches import by_count, by_tokens
from benchmarks.columns import Work, wanted
from benchmarks.worker import cores


class CTranslate2:
    """folder: a converted model with tokens `t0`, `t1`, …; it computes as it was converted.

    Settings are CTranslate2's own. workers: `inter_threads`, which share the cores. parts: into how many batches the
    requests of each worker are cut, sorted by source length; None: every request is a call of its own. unit: whether
    batches are alike in requests ("examples") or in padded tokens.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._loaded: tuple[int, Any] = 0, None

    def axes(self, work: list[Work]) -> dict[str, tuple[Any, ...]]:
        mixed = len({(len(w.source), w.length) for w in work}) > 1
        parts = (4, 2, 8, None) if mixed else tuple(p for p in (1, 2, 4) if p <= max(1, len(work) // cores()))
        return {
            "workers": (cores(), 1),
            "parts": parts,
            "unit": ("examples", "tokens") if mixed else ("examples",),
        }

    def run(self, work: list[Work], workers: int, parts: int | None, unit: str) -> float:
        translator = self._translator(workers)
        work = sorted(work, key=lambda w: len(w.source), reverse=True)
        pending = [_submit(translator, batch) for batch in _cut(work, parts and parts * workers, unit)]
        for each, answer in zip(work, chain.from_iterable(pending), strict=True):
            assert len(answer.result().hypotheses[0]) >= each.length
        return wanted(work)

    def _translator(self, workers: int) -> Any:
        """The one at hand, where it has so many workers; threads are the cores divided among them."""
        if self._loaded[0] != workers:
            threads = max(1, cores() // workers)
            translator = ctranslate2.Translator(self._folder, "cpu", inter_threads=workers, intra_threads=threads)
            self._loaded = workers, translator
        return self._loaded[1]


def _submit(translator: Any, batch: list[Work]) -> list[Any]:
    """Queue a batch; each request's pending answer."""
    longest = max(w.length for w in batch)
    answers: list[Any] = translator.translate_batch(
        [[f"t{token}" for token in w.source] for w in batch],
        beam_size=batch[0].beams,
        min_decoding_length=longest,
        max_decoding_length=longest,
        max_input_length=0,
        asynchronous=True,
    )
    return answers


def _cut(work: list[Work], batches: int | None, unit: str) -> Iterator[list[Work]]:
    if batches is None:
        return by_count(work, 1)
    if unit == "tokens":
        return by_tokens(work, -(-sum(len(w.source) for w in work) // batches))
    return by_count(work, -(-len(work) // batches))
