"""`transduce bench latency` and `throughput`: `LLM` in this process, timed as a caller would."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from time import perf_counter
from typing import Any

from transduce.bench.datasets import Clip, Item, Text
from transduce.bench.records import Record
from transduce.core.params import SamplingParams
from transduce.errors import ConfigError
from transduce.frontend.outputs import RequestOutput
from transduce.llm import LLM


def latency(llm: LLM, draw: Callable[[], Sequence[Item]], warmups: int, repeats: int) -> list[Record]:
    """A record for each run of a newly drawn batch, as if the batch were one request; warm-ups have none."""
    return [_whole(throughput(llm, draw(), progress=False)) for _ in range(warmups + repeats)][warmups:]


def throughput(llm: LLM, items: Sequence[Item], progress: bool = True) -> list[Record]:
    """A record for each item of one call; all of them begin and end with the call.

    Raises ConfigError for fields that `LLM.generate` does not know, and what it raises.
    """
    params = [_params(item) for item in items]
    begun = perf_counter()
    outputs = _outputs(llm, items, params, progress)
    ended = perf_counter()
    rows = llm.frontend.spec.fixed_rows or 0
    return [_record(item, output, rows, begun, ended) for item, output in zip(items, outputs, strict=True)]


def _outputs(
    llm: LLM, items: Sequence[Item], params: Sequence[SamplingParams], progress: bool
) -> Sequence[RequestOutput]:
    clips = [item.content for item in items if isinstance(item, Clip)]
    if clips:
        return [heard.output for heard in llm.transcribe(clips, use_tqdm=progress)]
    return llm.generate([item.prompt for item in items if isinstance(item, Text)], params, use_tqdm=progress)


def _params(item: Item) -> SamplingParams:
    given = item.fields if isinstance(item, Text) else {}
    known = {each.name for each in fields(SamplingParams)}
    if unknown := given.keys() - known:
        raise ConfigError(f"{', '.join(sorted(unknown))}: a prompt for LLM has no such field; leave it out")
    return SamplingParams(**given)


def _record(item: Item, output: RequestOutput, rows: int, begun: float, ended: float) -> Record:
    """rows: what the encoder makes of a clip, which servers count as tokens of the prompt."""
    return Record(
        begun,
        ended,
        prompt_tokens=rows + len(output.encoder_prompt_token_ids or ()) + len(output.prompt_token_ids),
        output_tokens=sum(len(answer.token_ids) for answer in output.outputs),
        audio_seconds=item.seconds if isinstance(item, Clip) else 0.0,
        error=output.error,
    )


def _whole(records: Sequence[Record]) -> Record:
    """The batch as one request."""
    counts: dict[str, Any] = {
        name: sum(getattr(record, name) for record in records) for name in ("prompt_tokens", "output_tokens")
    }
    error = next((record.error for record in records if record.error), None)
    return Record(records[0].begun, records[0].ended, error=error, **counts)
