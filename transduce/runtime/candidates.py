"""Candidates for beams: the best tokens of each row with their log-probabilities, or some drawn without replacement.

Owns the order of things: logits are normalised, then edited by rules, then warped; nothing normalises them again unless
it is asked for, as in transformers. Knows no beam. A row does not depend on other rows.
"""

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from transduce.core.plan import Candidate, Choice
from transduce.core.request import Read, Sampling
from transduce.kernels import ops
from transduce.models.base import Head
from transduce.runtime.sampler import Edit, mixed, most_likely, nothing, warp


def candidates(head: Head, hidden: Tensor, reads: Sequence[Read], edited: Collection[int], edit: Edit) -> list[Choice]:
    """What each row of hidden [rows, d] gives for its read; of equal scores the lower token is the better.

    Rows in `edited`, and those that are drawn from or reported on, get all their log-probabilities and are handed to
    one call of `edit`; of the others only the best are asked.
    """
    most = max(read.beams for read in reads)
    whole = [row for row, read in enumerate(reads) if row in edited or read.sampling or read.logprobs is not None]
    choices = [Choice(())] * len(reads)
    if len(whole) < len(reads):
        values, tokens, lse = head.top_k_lse(hidden, most)
        choices = _best(values - lse[:, None], tokens, reads)
    if whole:
        scores = head(hidden[whole])
        logprobs = scores.float() - ops.top_k_lse(scores, 1)[2][:, None]
        edit(whole, logprobs)
        best = _best(*ops.top_k(logprobs, min(most, logprobs.shape[1])), [reads[row] for row in whole])
        for row, line, choice in zip(whole, logprobs, best, strict=True):
            choices[row] = _answer(line, reads[row], choice) if choice.candidates else nothing(line, row in edited)
    return choices


def _best(logprobs: Tensor, tokens: Tensor, reads: Sequence[Read]) -> list[Choice]:
    """What rows give of their best tokens [rows, most], but those that cannot follow."""
    rows = zip(logprobs.tolist(), tokens.tolist(), reads, strict=True)
    return [Choice(_finite(values[: read.beams], each[: read.beams])) for values, each, read in rows]


def _finite(logprobs: Sequence[float], tokens: Sequence[int]) -> tuple[Candidate, ...]:
    pairs = zip(tokens, logprobs, strict=True)
    return tuple([Candidate(token, logprob) for token, logprob in pairs if math.isfinite(logprob)])


def _answer(logprobs: Tensor, read: Read, best: Choice) -> Choice:
    """What one row's log-probabilities [vocab] give, edited as they are; at least one is finite."""
    found = best.candidates
    if read.sampling is not None:
        seed = mixed(read.sampling.seed, *read.samples, read.position)
        found = _drawn(logprobs, read.sampling, seed, min(read.beams, len(logprobs)))
    return Choice(found, None if read.logprobs is None else most_likely(logprobs, read.logprobs))


def _drawn(logprobs: Tensor, sampling: Sampling, seed: int, count: int) -> tuple[Candidate, ...]:
    """Tokens by the greatest sums of log-probability and Gumbel noise: so they are drawn without replacement.

    The sums of several rows, each with its hypothesis' log-probability added, can be compared: that draws from all.
    """
    warped = warp(logprobs, sampling)
    if sampling.normalized:
        warped = warped.log_softmax(-1)
    noise = torch.empty(len(warped), dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(seed))
    gumbel = noise.clamp_(min=1e-300).log_().neg_().float().to(warped.device)
    _, tokens = ops.top_k((warped + gumbel)[None], count)
    found = zip(tokens[0].tolist(), warped[tokens[0]].tolist(), gumbel[tokens[0]].tolist(), strict=True)
    return tuple(Candidate(*each) for each in found if each[1] > -torch.inf)
