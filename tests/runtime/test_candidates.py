"""Candidates for beams: log-probabilities before rules, ties, what cannot follow, and draws without replacement."""

from collections.abc import Sequence
from itertools import permutations

import pytest
import torch
from torch import Tensor

from tests.runtime.test_sampler import Plain, chi_square, leave, random_scores
from transduce.core.plan import Candidate, Choice
from transduce.core.request import Read, Sampling
from transduce.kernels import ops
from transduce.runtime.candidates import candidates

WHOLE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)


def pairs(found: Sequence[Candidate]) -> tuple[list[int], list[float | None]]:
    return [each.token for each in found], [each.logprob for each in found]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("edited", [(), (0, 1, 2, 3)])
def test_the_best_log_probabilities(dtype: torch.dtype, edited: tuple[int, ...]) -> None:
    logits = random_scores(1, 4, 50_000).to(dtype)
    choices = candidates(Plain(), logits, [Read(0, beams=7)] * 4, edited, leave)
    values, tokens = logits.float().log_softmax(-1).sort(dim=-1, descending=True, stable=True)
    for row, choice in enumerate(choices):
        found, logprobs = pairs(choice.candidates)
        assert found == tokens[row, :7].tolist()
        assert logprobs == pytest.approx(values[row, :7].tolist(), abs=1e-5)
        assert choice.observed is None


@pytest.fixture(params=["kernels", "torch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(ops, "library", lambda: None)


@pytest.mark.usefixtures("kernels")
def test_of_equals_the_lower_token_is_the_better() -> None:
    logits = torch.zeros(1, 9).index_fill_(1, torch.tensor([4, 7]), 1.0)
    for edited in ((), (0,)):
        (choice,) = candidates(Plain(), logits, [Read(0, beams=5)], edited, leave)
        assert pairs(choice.candidates)[0] == [4, 7, 0, 1, 2]


@pytest.mark.usefixtures("kernels")
def test_rules_edit_log_probabilities_and_nothing_normalises_them_again() -> None:
    logits = random_scores(2, 2, 8)

    def edit(rows: Sequence[int], scores: Tensor) -> None:
        assert rows == [1]
        scores[0, :6] = -torch.inf
        scores[0, 6] *= 2

    plain, ruled = candidates(Plain(), logits, [Read(0, beams=3), Read(0, beams=3)], (1,), edit)
    expected = logits.log_softmax(-1)[1]
    assert len(plain.candidates) == 3
    found = {each.token: each.logprob for each in ruled.candidates}
    assert found == pytest.approx({6: float(2 * expected[6]), 7: float(expected[7])}, abs=1e-5)


@pytest.mark.parametrize("bad", [torch.nan, -torch.inf])
@pytest.mark.parametrize("sampling", [None, WHOLE])
def test_a_row_of_nothing_has_no_candidates(bad: float, sampling: Sampling | None) -> None:
    logits = torch.full((1, 5), bad)
    read = Read(0, sampling=sampling, logprobs=2, beams=3)
    assert candidates(Plain(), logits, [read], (), leave) == [Choice(())]
    assert candidates(Plain(), logits, [read], (0,), leave) == [Choice(())]
    assert candidates(Plain(), torch.zeros(1, 5), [read], (0,), forbid) == [Choice((), forbidden=True)]


def forbid(rows: Sequence[int], scores: Tensor) -> None:
    scores.fill_(-torch.inf)


def test_more_candidates_than_tokens() -> None:
    (choice,) = candidates(Plain(), random_scores(3, 1, 4), [Read(0, beams=32)], (), leave)
    assert sorted(pairs(choice.candidates)[0]) == [0, 1, 2, 3]


def test_what_is_reported() -> None:
    logits = random_scores(4, 1, 30)
    (choice,) = candidates(Plain(), logits, [Read(0, logprobs=2, beams=3)], (), leave)
    assert choice.observed == tuple((each.token, each.logprob) for each in choice.candidates[:2])


def test_a_row_does_not_depend_on_the_others() -> None:
    logits = random_scores(5, 12, 3000)
    kinds = [Read(0, beams=4), Read(0, beams=9, logprobs=3), Read(3, beams=6, sampling=WHOLE, samples=(2,))]
    reads = [kinds[row % 3] for row in range(12)]
    together = candidates(Plain(), logits, reads, {0, 4}, leave)
    alone = [
        candidates(Plain(), logits[row : row + 1], [reads[row]], (0,) * (row in {0, 4}), leave)[0] for row in range(12)
    ]
    assert together == alone


def test_draws_are_without_replacement() -> None:
    """Ordered pairs of tokens have the probability of drawing the one, then the other from what is left."""
    scores = torch.tensor([0.5, -torch.inf, 1.5, 1.0, -0.5])
    sampling = Sampling(1.3, 0, 1.0, 0.0, seed=3)
    reads = [Read(position, sampling=sampling, samples=(1,), beams=2) for position in range(20_000)]
    drawn = [pairs(c.candidates)[0] for c in candidates(Plain(), scores.expand(len(reads), -1), reads, (), leave)]
    kept = [0, 2, 3, 4]
    probs = dict(zip(kept, (scores / 1.3).softmax(-1)[kept].tolist(), strict=True))
    ordered = list(permutations(kept, 2))
    counts = torch.tensor([drawn.count([*pair]) for pair in ordered])
    assert counts.sum() == len(reads)
    expected = torch.tensor([probs[a] * probs[b] / (1 - probs[a]) for a, b in ordered])
    assert chi_square(counts, expected) < 31.3  # 99.9 %, 11 degrees of freedom


def test_draws_differ_by_seed_hypothesis_and_position_and_repeat() -> None:
    logits = torch.zeros(1, 1000)

    def drawn(seed: int, sample: int, position: int) -> tuple[Candidate, ...]:
        sampling = Sampling(1.0, 0, 1.0, 0.0, seed)
        read = Read(position, sampling=sampling, samples=(sample,), beams=5)
        return candidates(Plain(), logits, [read], (), leave)[0].candidates

    assert drawn(1, 2, 3) == drawn(1, 2, 3)
    assert len({drawn(*each) for each in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (2**64 - 1, 0, 0))}) == 5


@pytest.mark.parametrize("normalized", [False, True])
def test_warped_log_probabilities_are_normalised_again_if_asked(normalized: bool) -> None:
    logits = random_scores(6, 1, 20)
    sampling = Sampling(2.0, 3, 1.0, 0.0, seed=0, normalized=normalized)
    (choice,) = candidates(Plain(), logits, [Read(0, sampling=sampling, beams=9)], (), leave)
    best = logits[0].log_softmax(-1).topk(3)
    warped = (best.values / 2).log_softmax(-1) if normalized else best.values / 2
    expected = dict(zip(best.indices.tolist(), warped.tolist(), strict=True))
    assert {each.token: each.logprob for each in choice.candidates} == pytest.approx(expected, abs=1e-5)
