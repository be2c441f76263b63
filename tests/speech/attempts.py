"""Attempts at windows, as if an engine had made them."""

from typing import Any

from transduce.frontend.outputs import CompletionOutput, RequestMetrics, RequestOutput
from transduce.speech.fallback import Attempt


def output(tokens: tuple[int, ...] = (), total: float = 0.0, silence: float = 0.0, **fields: Any) -> RequestOutput:
    """An output of those tokens and that log-probability. silence: the probability of no speech."""
    answer = CompletionOutput(0, "", [*tokens], total, finish_reason="stop")
    return RequestOutput(
        "0", None, None, None, [0], [answer], True, RequestMetrics(0.0), no_speech_prob=silence, **fields
    )


def attempt(tokens: tuple[int, ...] = (), **fields: Any) -> Attempt:
    """An attempt that can be believed but for `fields`."""
    sure = {"temperature": 0.0, "avg_logprob": -0.5, "compression_ratio": 1.0, "no_speech_prob": 0.0}
    return Attempt(**{"output": output(tokens), "tokens": tokens, "text": "", **sure, **fields})
