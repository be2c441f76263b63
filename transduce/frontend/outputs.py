"""What generation and scoring give back: records of text and token ids, named as vLLM names them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from transduce.core.output import FinishReason, Weights


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token's log-probability, its rank (1: the likeliest; None: not among those reported), and what it adds to the
    text before it.
    """

    logprob: float
    rank: int | None
    decoded_token: str | None


@dataclass(slots=True)
class CompletionOutput:
    """One answer.

    token_ids hold the token that ended it, EOS or a stop token; text does not.
    cumulative_logprob, logprobs: None unless asked for; a token's own log-probability and the likeliest tokens'.
    finish_reason: "stop" or "length". stop_reason: the stop token or string that matched, None for EOS.
    score: what a beam was ranked by, cumulative_logprob (then always given) / tokens ** length_penalty; None where a
    stop string cut it.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[Mapping[int, Logprob]] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Times of a request in seconds since the epoch; None: it did not come to that."""

    arrival_time: float
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    finished_time: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Where in the audio a text is heard.

    logprobs: of each of its tokens, with only text to choose from. weights: float32 [heads, tokens, rows], what some of
    the decoder's heads look at while it reads all its tokens, of which those of the text begin at `start`.
    """

    start: int
    logprobs: list[float]
    weights: Weights


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What became of one prompt.

    prompt, prompt_token_ids: what the decoder started from, prompt None where it was not given as text.
    encoder_prompt, encoder_prompt_token_ids: the encoder's text and ids, None where it was not given as such.
    truncated: source tokens that truncate_prompt_tokens cut. prompt_logprobs: None unless asked for; of each of
    prompt_token_ids, the first ones None. error: why there is no answer; `outputs` then hold one
    with finish_reason "error". no_speech_prob: how likely the audio holds no speech, where that was asked for.
    alignment: the same of a text. encoder_rows: that the encoder makes of the source, or found in its cache.
    """

    request_id: str
    encoder_prompt: str | None
    encoder_prompt_token_ids: list[int] | None
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics
    truncated: int = 0
    prompt_logprobs: list[Mapping[int, Logprob] | None] | None = None
    error: str | None = None
    no_speech_prob: float | None = None
    alignment: Alignment | None = None
    encoder_rows: int = 0


@dataclass(frozen=True, slots=True)
class TargetScore:
    """How likely a target is, given its source: its tokens, EOS among them, and the log-probability of each.

    Both are empty where there is an `error`, as in RequestOutput.
    """

    token_ids: list[int]
    logprobs: list[float]
    output: RequestOutput

    @property
    def total(self) -> float:
        """The log-probability of the whole target; NaN where there is an error."""
        return math.nan if self.error is not None else math.fsum(self.logprobs)

    @property
    def mean(self) -> float:
        """The same per token."""
        return self.total / max(1, len(self.logprobs))

    @property
    def error(self) -> str | None:
        """Why there is no score."""
        return self.output.error
