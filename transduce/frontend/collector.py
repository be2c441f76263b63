"""Collector: what the engine says of one request, step by step, to its RequestOutput.

Owns the hypotheses' tokens and text and notices stop strings. Knows no engine: whoever steps it passes `Ends` on.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from transduce.core.output import Delta, FinishReason, Output, TokenLogprobs, Weights
from transduce.core.params import SamplingParams
from transduce.errors import TransduceError
from transduce.frontend.detokenizer import Detokenizer
from transduce.frontend.frontend import Job
from transduce.frontend.logprobs import Tables
from transduce.frontend.outputs import Alignment, CompletionOutput, Logprob, RequestMetrics, RequestOutput


@dataclass(frozen=True, slots=True)
class Ends:
    """A stop string ended hypothesis `index` after `at` tokens, which the engine cannot know."""

    index: int
    at: int


class Collector:
    """The results of one job. arrived: when its prompt came, in seconds since the epoch.

    streamed: whether results are looked at before the end. Their text is then decoded as it comes, and never ends in
    half a character or in what may become a stop string.
    """

    def __init__(self, job: Job, arrived: float, *, streamed: bool = False) -> None:
        self.job = job
        self._hypotheses = [_Hypothesis(index, job, streamed) for index in range(job.request.answers)]
        scored, prompt = job.request.scored, job.request.prompt
        probing = scored is not None and scored.targets is not None
        self._scored = None if scored is None or probing else Tables(job.decode, prompt[: scored.start])
        self._no_speech: float | None = None
        self._said: list[float] = []
        self._weights: list[Weights] = []
        self._metrics = RequestMetrics(arrived)
        self.error: TransduceError | None = None
        """Why there is no answer."""

    @property
    def scheduled(self) -> bool:
        """Whether the request has been part of a step."""
        return self._metrics.first_scheduled_time is not None

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self._metrics.finished_time is not None

    def add(self, output: Output) -> list[Ends]:
        """Take in what one step or several did for the request."""
        self.error = self.error or output.error
        if self._scored is not None:
            self._scored.extend(output.scored, last=False)
        elif self.job.request.attention is not None:
            self._said += [each.logprob for each in output.scored]
            self._weights += output.weights
        elif output.scored:
            self._no_speech = math.exp(output.scored[0].logprob)
        ends = [end for delta in output.deltas if (end := self._hypotheses[delta.index].add(delta)) is not None]
        if output.finished and self.job.request.beams is not None and self._hypotheses[0].done:
            self._hypotheses = [each for each in self._hypotheses if each.done]  # beams may find fewer than wanted
        times = self._metrics
        finished = output.finished or all(hypothesis.done for hypothesis in self._hypotheses)
        self._metrics = RequestMetrics(
            times.arrival_time,
            times.first_scheduled_time or output.scheduled,
            times.first_token_time or (output.first if any(delta.tokens for delta in output.deltas) else None),
            output.last if finished else None,
        )
        return ends

    def result(self) -> RequestOutput:
        """The answer so far, which later steps do not change; final once `finished`.

        Hypotheses that neither ended nor failed by then were aborted.
        """
        cut: FinishReason | None = "error" if self.error is not None else "abort" if self.finished else None
        job = self.job
        return RequestOutput(
            request_id=job.request.request_id,
            encoder_prompt=job.text,
            encoder_prompt_token_ids=None if job.ids is None else list(job.ids),
            prompt=job.prompt,
            prompt_token_ids=list(job.request.prompt),
            outputs=self._answers(cut),
            finished=self.finished,
            metrics=self._metrics,
            truncated=job.truncated,
            prompt_logprobs=None if job.params.prompt_logprobs is None else self._prompt_logprobs(),
            error=None if self.error is None else str(self.error),
            no_speech_prob=self._no_speech,
            alignment=self._alignment() if self.finished and self._weights else None,
            encoder_rows=sum(each.rows for each in job.request.inputs),
        )

    def _answers(self, cut: FinishReason | None) -> list[CompletionOutput]:
        """All, or of more samples than are wanted the best, once they have ended."""
        params, made = self.job.params, [hypothesis.completion(cut) for hypothesis in self._hypotheses]
        if not isinstance(params, SamplingParams) or len(made) <= params.n or self.job.request.beams is not None:
            return made
        best = sorted(self._hypotheses, key=lambda each: each.mean, reverse=True)[: params.n if self.finished else 0]
        return [replace(made[each.index], index=rank) for rank, each in enumerate(best)]

    def _alignment(self) -> Alignment:
        scored = self.job.request.scored
        assert scored is not None
        return Alignment(scored.start, self._said, np.concatenate(self._weights, axis=1))

    def _prompt_logprobs(self) -> list[Mapping[int, Logprob] | None]:
        scored, prompt = self.job.request.scored, self.job.request.prompt
        if scored is None or self._scored is None:
            return [None] * len(prompt)
        return [*[None] * scored.start, *self._scored.made]


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
        metrics=RequestMetrics(now, finished_time=now),
        error=str(error),
    )


class _Hypothesis:
    """One answer in the making. Text is decoded at the end, or as it comes: streamed, or where it may be stopped."""

    def __init__(self, index: int, job: Job, streamed: bool) -> None:
        self._job = job
        self._answer = CompletionOutput(index)
        self._logprobs: list[TokenLogprobs] = []
        self._tables = Tables(job.decode)
        self._spoken = 0
        self._text: Detokenizer | None = None
        if job.decode is not None and (streamed or job.stop_strings):
            self._text = Detokenizer(
                job.decode,
                job.stop_strings,
                include=job.params.include_stop_str_in_output,
                least=job.params.min_tokens or 0,
                cleaned=job.cleaned,
            )

    @property
    def index(self) -> int:
        """The engine's number of it."""
        return self._answer.index

    @property
    def mean(self) -> float:
        """Log-probability of a token, if those are known."""
        return sum(each.logprob for each in self._logprobs) / max(1, len(self._logprobs))

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
        answer.cumulative_logprob, answer.score = delta.total, delta.score
        silent = delta.finish_reason == "stop" and not self._job.params.include_stop_str_in_output
        self._spoken = len(answer.token_ids) - silent
        if self._text is None or not self._stopped(self._text):
            return None
        self._spoken = self._text.kept
        answer.finish_reason, answer.stop_reason = "stop", self._text.stop
        answer.cumulative_logprob = answer.score = None
        del answer.token_ids[self._spoken :], self._logprobs[self._spoken :]
        return None if delta.finish_reason else Ends(answer.index, self._spoken)

    def completion(self, cut: FinishReason | None) -> CompletionOutput:
        """The answer so far. cut: why it ends here if it has not ended."""
        answer, decode = self._answer, self._job.decode
        if not self.done:
            answer.finish_reason = cut
        if decode is not None:
            answer.text = decode(answer.token_ids[: self._spoken]) if self._text is None else self._text.shown
        if self._job.params.logprobs is not None:
            self._tables.extend(self._logprobs[len(self._tables.made) :], last=self.done)
            answer.logprobs = [*self._tables.made]
        if self._job.request.logprobs is not None:
            answer.cumulative_logprob = sum(each.logprob for each in self._logprobs)
        return replace(answer, token_ids=[*answer.token_ids])

    def _stopped(self, text: Detokenizer) -> bool:
        text.push(self._answer.token_ids[text.kept : self._spoken])
        if self.done:
            text.flush()
        return text.stop is not None
