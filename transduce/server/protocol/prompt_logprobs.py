"""Log-probabilities of the decoder's prompt, in vLLM's form."""

import math

from typing_extensions import TypedDict

from transduce.frontend.outputs import Logprob, RequestOutput

IMPOSSIBLE = -9999.0
"""OpenAI's log-probability of what cannot be: JSON has no infinity."""


class PromptLogprob(TypedDict):
    """A token's log-probability, its rank (null: not among those asked for), and what it adds to the text."""

    logprob: float
    rank: int | None
    decoded_token: str | None


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""By token of the decoder's prompt, and by id; null for those in front of the first that is scored."""


def prompt_logprobs(output: RequestOutput) -> PromptLogprobs | None:
    """As JSON has them; None where none were asked for."""
    if output.prompt_logprobs is None:
        return None
    return [
        None if table is None else {token: _told(each) for token, each in table.items()}
        for table in output.prompt_logprobs
    ]


def _told(each: Logprob) -> PromptLogprob:
    return {"logprob": finite(each.logprob), "rank": each.rank, "decoded_token": each.decoded_token}


def finite(logprob: float) -> float:
    """A log-probability as JSON has it."""
    return IMPOSSIBLE if logprob == -math.inf else logprob
