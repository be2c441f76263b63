"""The windows of one recording as one text, one output and one row of segments, and several outputs as one.

Owns what is summed up, and what is the first or the last window's. Knows not how windows came about.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from transduce.frontend.outputs import CompletionOutput, RequestMetrics, RequestOutput
from transduce.speech.segments import Segment
from transduce.speech.sequential import Heard


def joined(heard: Sequence[Heard], marks: bool, finished: bool) -> tuple[str, tuple[Segment, ...], RequestOutput]:
    """What windows say. marks: whether the text holds the times of segments. finished: whether these are all."""
    numbered = enumerate(segment for each in heard for segment in each.segments)
    segments = tuple(replace(segment, id=number) for number, segment in numbered)
    text = "".join(marked(segment) if marks else segment.text for segment in segments).strip()
    output = summed([each.attempt.output for each in heard], text)
    return text, segments, replace(output, finished=finished)


def silence() -> RequestOutput:
    """The output of a recording in which nobody speaks: nothing ran."""
    now, answer = time.time(), CompletionOutput(0, finish_reason="stop")
    return RequestOutput("", None, None, None, [], [answer], True, RequestMetrics(now, finished_time=now))


def marked(segment: Segment) -> str:
    """Its text between its times, in the form of Whisper's timestamps."""
    return f"<|{segment.start:.2f}|>{segment.text}<|{segment.end:.2f}|>" if segment.text else ""


def summed(outputs: Sequence[RequestOutput], text: str) -> RequestOutput:
    """Outputs as one: the first one's prompt, all tokens and rows, the last one's end, and the first error."""
    first, last = outputs[0], outputs[-1]
    tokens = [token for output in outputs for token in output.outputs[0].token_ids]
    times = RequestMetrics(
        first.metrics.arrival_time,
        first.metrics.first_scheduled_time,
        first.metrics.first_token_time,
        last.metrics.finished_time,
    )
    answer = CompletionOutput(0, text, tokens, finish_reason=last.outputs[0].finish_reason)
    error = next((output.error for output in outputs if output.error is not None), None)
    rows = sum(output.encoder_rows for output in outputs)
    return replace(first, outputs=[answer], metrics=times, error=error, encoder_rows=rows)
