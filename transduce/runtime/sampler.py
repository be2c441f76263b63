"""From scores to tokens: the best one, draws, and log-probabilities, for one slice of the rows read.

Owns the warpers (temperature, top-k, top-p, min-p, in transformers' order) and the noise of draws. Knows no
sequence and no rule: the caller says which rows it edits, and edits them. A row does not depend on other rows.
"""

import math
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from transduce.core.plan import Candidate, Choice
from transduce.core.request import Read, Sampling
from transduce.kernels import ops
from transduce.models.base import Head

Edit = Callable[[Sequence[int], Tensor], None]
"""edit(rows, scores) changes scores [len(rows), vocab] in place; scores[i] are those of row rows[i]."""

Choose = Callable[[Head, Tensor, Sequence[Read], Collection[int], Edit], list[Choice]]
"""choose(head, hidden [rows, d], reads, edited, edit): what each row gives for its read; `edited` rows have rules."""

_WORD = 2**64 - 1


def best_or_drawn(
    head: Head, hidden: Tensor, reads: Sequence[Read], edited: Collection[int], edit: Edit
) -> list[Choice]:
    """What each row of hidden [rows, d] gives for its read; of equal scores the lower token is the better.

    Rows in `edited`, and those whose reads sample or report log-probabilities, get all of the head's scores, in
    float32, and are handed to one call of `edit`; of the others only the best score is asked. Reported
    log-probabilities are of scores that are edited but not warped.
    """
    scored = [row for row, read in enumerate(reads) if row in edited or not _only_best(read)]
    if not scored:
        return _best(*head.best(hidden))
    choices = _best(*head.best(hidden)) if len(scored) < len(reads) else [Choice(())] * len(reads)
    scores = head(hidden[scored]).to(torch.float32)
    edit(scored, scores)
    values, tokens, lse = ops.top_k_lse(scores, 1)
    found = zip(scored, scores, _best(values[:, 0], tokens[:, 0]), lse.tolist(), strict=True)
    for row, line, best, total in found:
        choices[row] = _answer(line, reads[row], best, total) if best.candidates else nothing(line, row in edited)
    return choices


def nothing(scores: Tensor, edited: bool) -> Choice:
    """No candidate for scores [vocab]: the edits have forbidden every token, or the model's scores are no numbers."""
    return Choice((), forbidden=edited and bool((scores == -torch.inf).all()))


def warp(scores: Tensor, sampling: Sampling) -> Tensor:
    """Scores [vocab] (float32), with at least one finite, at the temperature; -inf where none may be drawn."""
    scores = whole = scores / sampling.temperature
    if sampling.top_k > 0:
        scores = _top_k(scores, max(sampling.top_k, sampling.keep))
    if sampling.top_p < 1:
        scores = _top_p(scores, sampling.top_p)
    if sampling.min_p > 0:
        scores = _min_p(scores, sampling.min_p)
    if sampling.keep > 1:
        kept = ops.top_k(whole[None], min(sampling.keep, len(whole)))[1][0]
        scores = scores.index_copy(0, kept, whole[kept])
    return scores


def draw(logprobs: Tensor, uniforms: Sequence[float]) -> list[int]:
    """The token of logprobs [vocab] at each of `uniforms` in [0, 1), by the inverse cumulative distribution.

    No token of probability 0 is drawn: its cumulative sum is its predecessor's, and the search is for a greater.
    """
    # On the host, where sums run from left to right; a parallel scan need not rise monotonically.
    cumulative = logprobs.exp().cpu().cumsum(-1, dtype=torch.float64)
    points = torch.tensor(uniforms, dtype=torch.float64) * cumulative[-1]
    last = torch.searchsorted(cumulative, cumulative[-1])  # a point may be rounded up to the sum
    return torch.searchsorted(cumulative, points, right=True).clamp(max=last).tolist()


def uniform(seed: int, sample: int, position: int) -> float:
    """A number in [0, 1) that its arguments alone determine."""
    return (mixed(seed, sample, position) >> 11) * 2.0**-53


def mixed(*numbers: int) -> int:
    """64 bits that the numbers and their order determine: splitmix64's finaliser over each in turn."""
    state = 0
    for number in numbers:
        state = _mixed((state + number + 0x9E3779B97F4A7C15) & _WORD)
    return state


def _only_best(read: Read) -> bool:
    return read.sampling is None and read.logprobs is None


def _best(values: Tensor, tokens: Tensor) -> list[Choice]:
    return [
        Choice((Candidate(token, None),) if math.isfinite(value) else ())
        for value, token in zip(values.tolist(), tokens.tolist(), strict=True)
    ]


def _answer(scores: Tensor, read: Read, best: Choice, lse: float) -> Choice:
    """What scores [vocab] give, `lse` being the logarithm of the sum of their exponentials."""
    if _only_best(read):
        return best
    tokens = [candidate.token for candidate in best.candidates]
    if read.sampling is not None:
        seed = read.sampling.seed
        noise = [uniform(seed, sample, read.position) for sample in read.samples]
        tokens = draw(warp(scores, read.sampling).log_softmax(-1), noise)
    if read.logprobs is None:
        return Choice(tuple(Candidate(token, None) for token in tokens))
    chosen = tuple(Candidate(token, score - lse) for token, score in zip(tokens, scores[tokens].tolist(), strict=True))
    likely = tuple((token, score - lse) for token, score in most_likely(scores, read.logprobs))
    return Choice(chosen, likely)


def most_likely(scores: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    """The `count` tokens of the greatest of scores [vocab] and those, best first; fewer if fewer are finite."""
    if count == 0:
        return ()
    values, tokens = ops.top_k(scores[None], min(count, len(scores)))
    pairs = zip(tokens[0].tolist(), values[0].tolist(), strict=True)
    return tuple((token, value) for token, value in pairs if math.isfinite(value))


def _top_k(scores: Tensor, count: int) -> Tensor:
    least = scores.topk(min(count, len(scores))).values[-1]
    return scores.masked_fill(scores < least, -torch.inf)


def _top_p(scores: Tensor, mass: float) -> Tensor:
    probs = scores.softmax(-1)
    # Tokens this unlikely cannot make up 1 - mass together, so they go unsorted (the 2 is for rounding).
    tail = probs < (1 - mass) / (2 * len(probs))
    head = (~tail).nonzero().squeeze(1)
    head = head[scores[head].sort(stable=True).indices]
    below = probs.masked_fill(~tail, 0).sum(dtype=torch.float64)
    cumulative = (below + probs[head].cumsum(-1, dtype=torch.float64)).to(torch.float32)
    removed = head[:-1][cumulative[:-1] <= 1 - mass]
    return scores.masked_fill(tail, -torch.inf).index_fill_(0, removed, -torch.inf)


def _min_p(scores: Tensor, share: float) -> Tensor:
    probs = scores.softmax(-1)
    return scores.masked_fill(probs < share * probs.max(), -torch.inf)


def _mixed(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31
