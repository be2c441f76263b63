"""The sampler: the best token, warped distributions against transformers, draws, and reported log-probabilities."""

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from transformers.generation import logits_process as oracle

from transduce.core.plan import Candidate, Choice
from transduce.core.request import Read, Sampling
from transduce.kernels import ops
from transduce.runtime.sampler import best_or_drawn, draw, uniform, warp

WHOLE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)


class Plain:
    """A head whose scores are the hidden rows."""

    def __call__(self, hidden: Tensor) -> Tensor:
        return hidden

    def best(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = hidden.float().max(-1)
        return values, indices

    def top_k_lse(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        return ops.top_k_lse(hidden, min(k, hidden.shape[1]))


def random_scores(seed: int, *shape: int) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def leave(rows: Sequence[int], scores: Tensor) -> None:
    """An edit that edits nothing."""


def refuse(rows: Sequence[int], scores: Tensor) -> None:
    raise AssertionError("nothing was to be scored")


def transformers_warped(scores: Tensor, sampling: Sampling) -> Tensor:
    """As `_get_logits_processor` of transformers strings its warpers together."""
    warpers: list[oracle.LogitsProcessor] = [oracle.TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k > 0:
        warpers.append(oracle.TopKLogitsWarper(sampling.top_k, min_tokens_to_keep=sampling.keep))
    if sampling.top_p < 1:
        warpers.append(oracle.TopPLogitsWarper(sampling.top_p, min_tokens_to_keep=sampling.keep))
    warpers.append(oracle.MinPLogitsWarper(sampling.min_p, min_tokens_to_keep=sampling.keep))
    rows = scores.unsqueeze(0)
    for warper in warpers:
        rows = warper(torch.zeros(1, 1, dtype=torch.long), rows)
    return rows[0]


SCORES = {
    "random": random_scores(0, 997),
    "flat": 0.001 * random_scores(1, 400),
    "steep": 40 * random_scores(2, 300),
    "equal": torch.zeros(10),
    "ties": random_scores(3, 500).round(),
    "two": torch.tensor([1.0, 1.0]),
    "one": torch.tensor([0.3]),
    "forbidden": random_scores(4, 300).masked_fill(torch.arange(300) % 3 > 0, -torch.inf),
    "one allowed": torch.full((50,), -torch.inf).index_fill_(0, torch.tensor([7]), -2.0),
}


@pytest.mark.parametrize("name", SCORES)
def test_warped_distributions_are_those_of_transformers(name: str) -> None:
    keeps = (1,) if name in {"steep", "equal"} else (1, 3)  # which of equal probabilities transformers keeps is chance
    values = itertools.product((0.3, 1.0, 1.9), (0, 1, 3, 50, 5000), (0.0, 0.1, 0.5, 0.9, 1.0), (0.0, 0.05, 1.0), keeps)
    for temperature, top_k, top_p, min_p, keep in values:
        sampling = Sampling(temperature, top_k, top_p, min_p, seed=0, keep=keep)
        warped, expected = warp(SCORES[name], sampling), transformers_warped(SCORES[name], sampling)
        if name == "ties":  # torch.sort, as transformers calls it, takes them in any order
            warped, expected = warped.sort().values, expected.sort().values
        assert torch.equal(warped.isfinite(), expected.isfinite()), sampling
        torch.testing.assert_close(warped, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_vocabulary_keeps_the_nucleus_of_transformers(seed: int) -> None:
    scores = random_scores(seed, 50_000)
    for temperature, top_p in itertools.product((0.3, 1.0), (0.2, 0.8, 0.95, 0.999)):
        sampling = Sampling(temperature, 0, top_p, 0.0, seed=0)
        expected = transformers_warped(scores, sampling)
        torch.testing.assert_close(warp(scores, sampling), expected, atol=1e-5, rtol=0)


def chi_square(counts: Tensor, probabilities: Tensor) -> float:
    """Pearson's statistic of the counts of `probabilities` that are not 0."""
    expected = probabilities.double() * counts.sum()
    return float(((counts - expected) ** 2 / expected)[expected > 0].sum())


@pytest.mark.parametrize("varied", ["seed", "sample", "position"])
def test_uniform_numbers_are_uniform_along_each_argument(varied: str) -> None:
    fixed = {"seed": 5, "sample": 2, "position": 9}
    values = torch.tensor([uniform(**{**fixed, varied: i}) for i in range(20_000)], dtype=torch.float64)
    assert values.min() >= 0
    assert values.max() < 1
    # 99.9 % points of chi-square with 19 and 99 degrees of freedom; the second is for pairs of neighbours.
    assert chi_square(values.histc(20, 0, 1), torch.full((20,), 0.05)) < 43.8
    cells = (values[::2] * 10).long() * 10 + (values[1::2] * 10).long()
    assert chi_square(cells.bincount(minlength=100), torch.full((100,), 0.01)) < 148.2


def test_uniform_numbers_differ_by_each_argument_and_take_any_seed() -> None:
    seeds = (0, 1, -1, 2**63, 2**64 - 2)
    drawn = [uniform(*each) for each in itertools.product(seeds, range(20), range(20))]
    assert len(set(drawn)) == len(drawn)
    assert uniform(2**64 + 3, 0, 0) == uniform(3, 0, 0)


def test_drawn_frequencies_are_the_distribution() -> None:
    scores = torch.tensor([0.5, -torch.inf, 2.0, 1.0, -1.0, -3.0, 0.5])
    sampling = Sampling(1.3, 0, 1.0, 0.0, seed=11)
    reads = [Read(position, sampling=sampling, samples=tuple(range(8))) for position in range(2500)]
    choices = best_or_drawn(Plain(), scores.expand(len(reads), -1), reads, (), leave)
    tokens = torch.tensor([candidate.token for choice in choices for candidate in choice.candidates])
    counts = tokens.bincount(minlength=len(scores))
    assert counts.sum() == 20_000
    assert counts[1] == 0
    assert chi_square(counts, warp(scores, sampling).softmax(-1)) < 20.5  # 99.9 %, 5 degrees of freedom


def test_the_ends_of_the_cumulative_distribution_are_drawn_from() -> None:
    logprobs = torch.tensor([0.0, 0.5, 0.0, 0.25, 0.25, 0.0]).log()
    last = 1 - 2.0**-53
    assert draw(logprobs, [0.0, 0.4999, 0.5, 0.7499, 0.75, last]) == [1, 1, 3, 3, 4, 4]


def test_greedy_is_the_argmax_and_scores_nothing() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        logits = random_scores(0, 9, 5003).to(dtype).round()
        choices = best_or_drawn(Plain(), logits, [Read(0)] * 9, (), refuse)
        assert choices == [Choice((Candidate(token, None),)) for token in logits.argmax(-1).tolist()]


def test_of_equal_scores_the_first_wins_in_every_kind_of_read() -> None:
    logits = torch.zeros(3, 300, dtype=torch.bfloat16)
    logits[:, [41, 170, 299]] = 2.0
    reads = [Read(0), Read(0), Read(0, logprobs=2)]
    choices = best_or_drawn(Plain(), logits, reads, {1}, leave)
    assert [choice.candidates[0].token for choice in choices] == [41, 41, 41]
    assert choices[2].observed is not None
    assert [token for token, _ in choices[2].observed] == [41, 170]


def test_edits_see_scored_rows_only_in_float32_and_leave_the_logits() -> None:
    logits = random_scores(1, 5, 40).to(torch.bfloat16)
    before = logits.clone()
    reads = [Read(0), Read(0), Read(0, sampling=WHOLE), Read(0), Read(0, logprobs=0)]
    seen: list[list[int]] = []

    def edit(rows: Sequence[int], scores: Tensor) -> None:
        seen.append(list(rows))
        assert torch.equal(scores, before[list(rows)].float())
        scores[rows.index(1)] = -torch.inf
        scores[rows.index(1), 33] = 0

    choices = best_or_drawn(Plain(), logits, reads, {1}, edit)
    assert seen == [[1, 2, 4]]
    assert torch.equal(logits, before)
    assert choices[1] == Choice((Candidate(33, None),))
    best = before.argmax(-1).tolist()
    assert [choices[row].candidates[0].token for row in (0, 3, 4)] == [best[0], best[3], best[4]]


def test_logprobs_are_of_edited_scores_before_warpers() -> None:
    logits = random_scores(2, 2, 60)
    sharp = Sampling(0.2, 3, 0.9, 0.1, seed=4)
    reads = [Read(0, logprobs=5), Read(0, sampling=sharp, samples=(0, 1, 2), logprobs=0)]

    def edit(rows: Sequence[int], scores: Tensor) -> None:
        scores[:, 10:20] = -torch.inf
        scores[:, 30] += 1.5

    edited = logits.clone()
    edit([0, 1], edited)
    expected = edited.log_softmax(-1)
    greedy, sampled = best_or_drawn(Plain(), logits, reads, {0, 1}, edit)

    values, tokens = expected[0].topk(5)
    assert greedy.observed is not None
    assert [token for token, _ in greedy.observed] == tokens.tolist()
    assert [logprob for _, logprob in greedy.observed] == pytest.approx(values.tolist(), abs=1e-6)
    assert greedy.candidates == (Candidate(*greedy.observed[0]),)
    assert sampled.observed == ()
    assert len(sampled.candidates) == 3
    for token, logprob, _ in sampled.candidates:
        assert logprob == pytest.approx(expected[1, token].item(), abs=1e-6)


def test_forbidden_tokens_are_not_reported_and_the_vocabulary_may_be_small() -> None:
    logits = torch.tensor([[1.0, -torch.inf, 0.0]])
    (choice,) = best_or_drawn(Plain(), logits, [Read(0, logprobs=20)], (), leave)
    assert choice.observed is not None
    assert [token for token, _ in choice.observed] == [0, 2]
    assert math.isclose(sum(math.exp(logprob) for _, logprob in choice.observed), 1, abs_tol=1e-6)


@pytest.mark.parametrize("value", [-torch.inf, torch.nan])
def test_a_row_without_a_token_has_no_candidate_and_harms_no_other(value: float) -> None:
    kinds = [Read(0), Read(0, sampling=WHOLE), Read(0, logprobs=3), Read(0, sampling=WHOLE, logprobs=3)]
    logits = random_scores(3, 8, 30)
    logits[4:] = value
    choices = best_or_drawn(Plain(), logits, kinds * 2, {0}, leave)
    assert all(choice.candidates for choice in choices[:4])
    assert choices[4:] == [Choice(())] * 4
    ruled = best_or_drawn(Plain(), logits, kinds * 2, range(8), leave)
    assert ruled[4:] == [Choice((), forbidden=value < 0)] * 4


def mixed_reads(count: int) -> list[Read]:
    warped = Sampling(0.8, 40, 0.9, 0.02, seed=3)
    nucleus = Sampling(1.1, 0, 0.7, 0.0, seed=8)
    kinds = [
        Read(0),
        Read(3, logprobs=4),
        Read(5, sampling=warped, samples=(1, 4)),
        Read(9, sampling=nucleus, logprobs=2),
        Read(2, sampling=WHOLE),
    ]
    return [kinds[row % len(kinds)] for row in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [1009, 8192])
def test_a_row_gives_the_same_whatever_stands_beside_it(dtype: torch.dtype, vocab: int) -> None:
    logits, reads = random_scores(5, 20, vocab).to(dtype), mixed_reads(20)
    together = best_or_drawn(Plain(), logits, reads, {0, 1}, leave)
    assert together == best_or_drawn(Plain(), logits, reads, {0, 1}, leave)
    alone = [best_or_drawn(Plain(), logits[row : row + 1], [reads[row]], (), leave)[0] for row in range(20)]
    assert together == alone
    order = list(reversed(range(1, 20)))
    turned = best_or_drawn(Plain(), logits[order], [reads[row] for row in order], (), leave)
    assert turned == [together[row] for row in order]


def test_samples_of_one_read_are_those_of_reads_apart() -> None:
    logits = random_scores(6, 1, 50)
    (together,) = best_or_drawn(Plain(), logits, [Read(7, sampling=WHOLE, samples=(0, 3, 5))], (), leave)
    apart = [
        best_or_drawn(Plain(), logits, [Read(7, sampling=WHOLE, samples=(each,))], (), leave)[0] for each in (0, 3, 5)
    ]
    assert together.candidates == tuple(choice.candidates[0] for choice in apart)
    assert len({candidate.token for candidate in together.candidates}) > 1


def test_a_point_rounded_up_to_the_sum_draws_the_last_likely_token() -> None:
    logprobs = torch.tensor([0.5, 0.5, 0.0]).log()
    assert draw(logprobs, [1.0]) == [1]
