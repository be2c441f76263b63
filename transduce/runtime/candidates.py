"""Candidates for beams: the best tokens of each row with their log-probabilities, or some drawn without replacement.

Owns the order of things: logits are normalised, then edited by rules, then warped; nothing normalises them again, as in
transformers. Knows no beam. A row does not depend on other rows.
"""

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from transduce.core.plan import Candidate
from transduce.core.request import Read, Sampling
from transduce.kernels import ops
from transduce.models.base import Head
from transduce.runtime.sampler import Choice, Edit, mixed, most_likely, warp


def candidates(head: Head, hidden: Tensor, reads: Sequence[Read], edited: Collection[int], edit: Edit) -> list[Choice]:
    """What each row of hidden [rows, d] gives for its read; of equal scores the lower token is the better.

    Rows in `edited`, and those that are drawn from or reported on, get all their log-probabilities and are handed to
    one call of `edit`; of the others only the best are looked at.
    """
    scores = head(hidden)
    vocab = scores.shape[1]
    values, tokens, lse = ops.top_k_lse(scores, min(vocab, max(read.beams for read in reads)))
    best = zip(tokens.tolist(), (values - lse[:, None]).tolist(), reads, strict=True)
    choices = [Choice(_finite(each, logprobs, read.beams)) for each, logprobs, read in best]
    whole = [row for row, read in enumerate(reads) if row in edited or read.sampling or read.logprobs is not None]
    if whole:
        logprobs = scores[whole].float() - lse[whole, None]
        edit(whole, logprobs)
        for row, line in zip(whole, logprobs, strict=True):
            choices[row] = _of_all(line, reads[row])
    return choices


def _finite(tokens: Sequence[int], logprobs: Sequence[float], count: int) -> tuple[Candidate, ...]:
    """The first `count` tokens with their log-probabilities, but those that cannot follow."""
    pairs = zip(tokens[:count], logprobs[:count], strict=True)
    return tuple(Candidate(token, logprob) for token, logprob in pairs if math.isfinite(logprob))


def _of_all(logprobs: Tensor, read: Read) -> Choice:
    """What one row's log-probabilities [vocab] give, edited as they are."""
    count = min(read.beams, len(logprobs))
    if read.sampling is None:
        values, tokens = ops.top_k(logprobs[None], count)
        best = _finite(tokens[0].tolist(), values[0].tolist(), count)
    else:
        best = _drawn(logprobs, read.sampling, mixed(read.sampling.seed, *read.samples, read.position), count)
    observed = None if read.logprobs is None or not best else most_likely(logprobs, read.logprobs)
    return Choice(best, observed)


def _drawn(logprobs: Tensor, sampling: Sampling, seed: int, count: int) -> tuple[Candidate, ...]:
    """Tokens by the greatest sums of log-probability and Gumbel noise: so they are drawn without replacement.

    The sums of several rows, each with its hypothesis' log-probability added, can be compared: that draws from all.
    """
    warped = warp(logprobs, sampling)
    noise = torch.empty(len(warped), dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(seed))
    gumbel = noise.clamp_(min=1e-300).log_().neg_().float().to(warped.device)
    _, tokens = ops.top_k((warped + gumbel)[None], count)
    found = zip(tokens[0].tolist(), warped[tokens[0]].tolist(), gumbel[tokens[0]].tolist(), strict=True)
    return tuple(Candidate(*each) for each in found if each[1] > -torch.inf)
