"""Collector: what the engine says of one request, step by step, to its RequestOutput.

Owns the hypotheses' tokens and text and notices stop strings. Knows no engine: whoever steps it passes `Ends` on.
"""

import time
from dataclasses import dataclass

from transduce.core.request import Delta, Output, TokenLogprobs
from transduce.frontend.detokenizer import Detokenizer
from transduce.frontend.frontend import Job
from transduce.frontend.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from transduce.models.base import Decode


@dataclass(frozen=True, slots=True)
class Ends:
    """A stop string ended hypothesis `index` after `at` tokens, which the engine cannot know."""

    index: int
    at: int


class Collector:
    """The results of one job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._hypotheses = [_Hypothesis(index, job) for index in range(job.request.width)]
        self._error: str | None = None
        self._arrived = time.time()
        self._first: float | None = None
        self._finished: float | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self._finished is not None

    def add(self, output: Output) -> list[Ends]:
        """Take in what one step did for the request."""
        if output.deltas and self._first is None:
            self._first = time.time()
        self._error = self._error or output.error
        ends = [end for delta in output.deltas if (end := self._hypotheses[delta.index].add(delta)) is not None]
        if output.finished or all(hypothesis.done for hypothesis in self._hypotheses):
            self._finished = time.time()
        return ends

    def result(self) -> RequestOutput:
        """The answer so far; final once `finished`."""
        job = self.job
        return RequestOutput(
            request_id=job.request.request_id,
            encoder_prompt=job.text,
            encoder_prompt_token_ids=None if job.ids is None else list(job.ids),
            prompt=job.prompt,
            prompt_token_ids=list(job.request.prompt),
            outputs=[hypothesis.completion(self._error) for hypothesis in self._hypotheses],
            finished=self.finished,
            metrics=RequestMetrics(self._arrived, self._first, self._finished),
            truncated=job.truncated,
            error=self._error,
        )


def refused(request_id: str, error: Exception) -> RequestOutput:
    """The result of a prompt that made no request."""
    now = time.time()
    return RequestOutput(
        request_id=request_id,
        encoder_prompt=None,
        encoder_prompt_token_ids=None,
        prompt=None,
        prompt_token_ids=[],
        outputs=[CompletionOutput(0, finish_reason="error")],
        finished=True,
        metrics=RequestMetrics(now, None, now),
        error=str(error),
    )


class _Hypothesis:
    """One answer in the making. Text is decoded at the end, or as it comes where stop strings may end it."""

    def __init__(self, index: int, job: Job) -> None:
        self._job = job
        self._answer = CompletionOutput(index)
        self._logprobs: list[TokenLogprobs] = []
        self._spoken = 0
        self._stops: Detokenizer | None = None
        if job.decode is not None and job.stop_strings:
            self._stops = Detokenizer(
                job.decode,
                job.stop_strings,
                include=job.params.include_stop_str_in_output,
                least=job.params.min_tokens or 0,
                cleaned=job.cleaned,
            )

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._answer.finish_reason is not None

    def add(self, delta: Delta) -> Ends | None:
        """Take in what one step added; tokens after the end are ignored."""
        answer = self._answer
        if self.done:
            return None
        answer.token_ids += delta.tokens
        self._logprobs += delta.logprobs
        answer.finish_reason, answer.stop_reason = delta.finish_reason, delta.stop_token
        silent = delta.finish_reason == "stop" and not self._job.params.include_stop_str_in_output
        self._spoken = len(answer.token_ids) - silent
        if self._stops is None or not self._stopped(self._stops):
            return None
        self._spoken = self._stops.kept
        answer.finish_reason, answer.stop_reason = "stop", self._stops.stop
        del answer.token_ids[self._spoken :], self._logprobs[self._spoken :]
        return None if delta.finish_reason else Ends(answer.index, self._spoken)

    def completion(self, error: str | None) -> CompletionOutput:
        """The answer so far."""
        answer, decode = self._answer, self._job.decode
        if error is not None and not self.done:
            answer.finish_reason = "error"
        if decode is not None:
            answer.text = decode(answer.token_ids[: self._spoken]) if self._stops is None else self._stops.text
        if self._job.params.logprobs is not None:
            answer.cumulative_logprob = sum(each.logprob for each in self._logprobs)
            answer.logprobs = [_table(each, decode) for each in self._logprobs]
        return answer

    def _stopped(self, text: Detokenizer) -> bool:
        text.push(self._answer.token_ids[text.kept : self._spoken])
        if self.done:
            text.flush()
        return text.stop is not None


def _table(position: TokenLogprobs, decode: Decode | None) -> dict[int, Logprob]:
    """By token: the likeliest ones, best first, then the chosen one where it is not among them."""
    ranks: dict[int, tuple[float, int | None]] = {
        token: (logprob, rank) for rank, (token, logprob) in enumerate(position.top, start=1)
    }
    ranks.setdefault(position.token, (position.logprob, None))
    return {token: Logprob(value, rank, decode and decode([token])) for token, (value, rank) in ranks.items()}
