"""What generation gives back: records of text and token ids, named as vLLM names them. Filled by the collector."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from transduce.core.request import FinishReason


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token's log-probability, its rank (1: the likeliest; None: not among those reported) and its text."""

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


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What became of one prompt.

    prompt, prompt_token_ids: what the decoder started from, prompt None where it was not given as text.
    encoder_prompt, encoder_prompt_token_ids: the encoder's text and ids, None where it was not given as such.
    truncated: source tokens that truncate_prompt_tokens cut. error: why there is no answer; `outputs` then hold one
    with finish_reason "error".
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
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Transcription:
    """What a clip says. language: as given, detected, or the model's only one. error: as in RequestOutput."""

    text: str
    language: str | None
    output: RequestOutput

    @property
    def error(self) -> str | None:
        """Why there is no transcription."""
        return self.output.error
