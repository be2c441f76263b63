"""Static batches: how requests in a given order are cut, by number or by padded tokens."""

from collections.abc import Iterator, Sequence

from benchmarks.columns import Work


def by_count(work: Sequence[Work], most: int) -> Iterator[list[Work]]:
    """Batches of `most` requests."""
    for start in range(0, len(work), most):
        yield list(work[start : start + most])


def by_tokens(work: Sequence[Work], most: int) -> Iterator[list[Work]]:
    """Batches of at most `most` source tokens, padding included; a longer request is alone."""
    batch: list[Work] = []
    for each in work:
        width = max(len(w.source) for w in [*batch, each])
        if batch and width * (len(batch) + 1) > most:
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch
