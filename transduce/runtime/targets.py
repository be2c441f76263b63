"""Log-probabilities of given tokens, as the model gives them: no rule and no warper has a say.

A row does not depend on other rows.
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from transduce.core.plan import Candidate, Choice
from transduce.core.request import Read
from transduce.models.base import Head
from transduce.runtime.sampler import Edit, most_likely


def targets(head: Head, hidden: Tensor, reads: Sequence[Read], edited: Collection[int], edit: Edit) -> list[Choice]:
    """Each read's target after its row of hidden [rows, d], and the most likely tokens; `edited` and `edit` unused."""
    logits = head(hidden).float()
    for line, read in zip(logits, reads, strict=True):
        if read.among is not None:
            line[read.among :] = -torch.inf
    logprobs = logits.log_softmax(-1)
    return [_choice(line, read) for line, read in zip(logprobs, reads, strict=True)]


def _choice(logprobs: Tensor, read: Read) -> Choice:
    assert read.target is not None
    target = Candidate(read.target, logprobs[read.target].item())
    return Choice((target,), most_likely(logprobs, read.logprobs or 0))
