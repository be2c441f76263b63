"""The grammar of timestamps beside transformers' processor, over random histories."""

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from transduce.core.request import RuleSpec
from transduce.models.whisper.rules import Marks, Timestamps
from transduce.rules import Rule, build

EOS, NO_TIMESTAMPS, VOCABULARY = 8, 11, 24
ZERO = NO_TIMESTAMPS + 1
BEGINS, FIRSTS = (1, 3, 4), (None, 0, 3)


def rule(begin: int, first: int | None) -> Rule:
    spec = RuleSpec(Timestamps.name, (begin, NO_TIMESTAMPS, EOS, first))
    return build(spec, VOCABULARY, torch.device("cpu"), [Timestamps])


def oracle(begin: int, first: int | None) -> WhisperTimeStampLogitsProcessor:
    own = {"no_timestamps_token_id": NO_TIMESTAMPS, "max_initial_timestamp_index": first}
    return WhisperTimeStampLogitsProcessor(GenerationConfig(eos_token_id=EOS, **own), begin)


def replay(rule: Rule, tokens: Sequence[int], state: Marks | None = None) -> Marks:
    marks: Marks = rule.state() if state is None else state
    for token in tokens:
        marks = rule.advance(marks, token)
    return marks


def drawn(generator: torch.Generator, count: int) -> tuple[int, ...]:
    """Tokens, of which about half are timestamps, in any order."""
    text = torch.randint(0, NO_TIMESTAMPS, (count,), generator=generator)
    stamps = torch.randint(ZERO, VOCABULARY, (count,), generator=generator)
    return tuple(torch.where(torch.rand(count, generator=generator) < 0.5, text, stamps).tolist())


def scores(generator: torch.Generator, rows: int) -> Tensor:
    """Those of some rows lean to text, those of others to timestamps; some tokens are already forbidden."""
    values = 2 * torch.randn(rows, VOCABULARY, generator=generator)
    values[:, ZERO:] += 3 * torch.randn(rows, 1, generator=generator)
    return values.masked_fill(torch.rand(rows, VOCABULARY, generator=generator) < 0.1, -torch.inf)


@pytest.mark.parametrize(("begin", "first"), [*product(BEGINS, FIRSTS)])
def test_edits_its_rows_as_transformers_does_and_no_other(begin: int, first: int | None) -> None:
    generator = torch.Generator().manual_seed(10 * begin + (first or 0))
    ours, theirs = rule(begin, first), oracle(begin, first)
    for _ in range(40):
        pasts = [drawn(generator, begin + new) for new in (0, 1, 2, 3, 4, 7, 12)]
        rows = torch.randperm(12, generator=generator)[: len(pasts)].tolist()
        before = scores(generator, 12)
        after, expected = before.clone(), before.clone()
        ours.apply(rows, after, [replay(ours, past) for past in pasts])
        for row, past in zip(rows, pasts, strict=True):
            expected[row] = theirs(torch.tensor([past]), before[row : row + 1])[0]
        assert torch.equal(after, expected)


def test_trials_force_timestamps_and_leave_text() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, forced = rule(1, None), []
    for _ in range(40):
        values = scores(generator, 1)
        ours.apply([0], values, [replay(ours, (*drawn(generator, 4), 0, 0))])
        forced.append(bool(torch.isneginf(values[0, :ZERO]).all()))
    assert 5 <= sum(forced) <= 35


def test_forks_share_a_past_and_go_their_own_ways() -> None:
    generator = torch.Generator().manual_seed(1)
    ours, theirs = rule(3, 3), oracle(3, 3)
    shared = drawn(generator, 5)
    past = replay(ours, shared)
    ends = [drawn(generator, 4) for _ in range(20)]
    states = [replay(ours, end, past) for end in ends]
    assert past == replay(ours, shared)
    before = scores(generator, len(ends))
    after = before.clone()
    ours.apply(range(len(ends)), after, states)
    assert torch.equal(after, theirs(torch.tensor([[*shared, *end] for end in ends]), before))


@pytest.mark.parametrize(
    ("heard", "allowed"),
    [
        ((), {ZERO, ZERO + 1, ZERO + 2}),
        ((ZERO + 1,), {*range(NO_TIMESTAMPS)}),
        ((ZERO + 1, 5), {*range(NO_TIMESTAMPS), *range(ZERO + 2, VOCABULARY)}),
        ((ZERO + 1, 5, ZERO + 4), {*range(EOS, NO_TIMESTAMPS), *range(ZERO + 4, VOCABULARY)}),
        ((ZERO + 1, 5, ZERO + 4, ZERO + 4), {*range(NO_TIMESTAMPS)}),
    ],
)
def test_the_grammar(heard: tuple[int, ...], allowed: set[int]) -> None:
    ours = rule(1, 2)
    values = torch.zeros(1, VOCABULARY)
    values[:, EOS] = 9.0  # so that timestamps are not likelier than all text
    ours.apply([0], values, [replay(ours, (3, *heard))])
    assert set(torch.isfinite(values[0]).nonzero().flatten().tolist()) == allowed
