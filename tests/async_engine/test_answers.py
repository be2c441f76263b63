"""What AsyncLLM answers: the same as LLM, however it is asked and whoever asks beside."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.async_engine.support import answer, collect
from transduce import LLM, AsyncLLM, BeamSearchParams, RequestError, RequestOutput, SamplingParams, TargetScore

SOURCES = ("a cab", "hello", "transducers transduce", "x", "the end")
PARAMS = (
    SamplingParams(),
    SamplingParams(max_tokens=5, logprobs=2),
    SamplingParams(n=3, temperature=1.0, seed=7, max_tokens=12, logprobs=0),
    SamplingParams(stop=["bb", "q"], min_tokens=2),
    SamplingParams(stop="e", include_stop_str_in_output=True),
    SamplingParams(ignore_eos=True, skip_special_tokens=False),
    BeamSearchParams(beam_width=1, max_tokens=9),
)


def same(output: RequestOutput, expected: RequestOutput) -> bool:
    """All but the id and the times."""
    about = ("outputs", "encoder_prompt", "encoder_prompt_token_ids", "prompt", "prompt_token_ids", "finished", "error")
    return all(getattr(output, name) == getattr(expected, name) for name in about)


@pytest.mark.parametrize("stream", [True, False])
def test_many_at_once_are_answered_as_alone(stream: bool, shared: AsyncLLM, offline: LLM, loop: asyncio.Runner) -> None:
    asked = [(source, params) for params in PARAMS for source in SOURCES]
    expected = [offline.generate(*each)[0] for each in asked]

    async def ask() -> list[RequestOutput]:
        return await asyncio.gather(*(answer(shared, *each, stream=stream) for each in asked))

    for output, wanted in zip(loop.run(ask()), expected, strict=True):
        assert same(output, wanted), (output, wanted)


def test_a_function_cannot_enter_the_engines_process(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    params = SamplingParams(prefix_allowed_tokens_fn=lambda place, tokens: [2])
    with pytest.raises(RequestError, match=r"prefix_allowed_tokens_fn: the engine runs in a .* give guided_choice"):
        loop.run(answer(shared, "hello", params))


def test_an_unstreamed_request_has_one_output(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    for params in (SamplingParams(max_tokens=9), SamplingParams(max_tokens=9, stop="zz")):
        (output,) = loop.run(collect(shared, "hello", params, stream=False))
        assert output.finished
        assert len(output.outputs[0].token_ids) == 9


@pytest.mark.parametrize("params", PARAMS)
def test_a_streamed_text_only_grows(params: SamplingParams, shared: AsyncLLM, loop: asyncio.Runner) -> None:
    tries = (loop.run(collect(shared, "hello", params)) for _ in range(20))
    outputs = next(each for each in tries if len(each) > 1)  # a reader that is slow may get all at once
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    for before, after in pairwise(outputs):
        for shorter, longer in zip(before.outputs, after.outputs, strict=True):
            assert longer.text.startswith(shorter.text)
            assert longer.token_ids[: len(shorter.token_ids)] == shorter.token_ids
            assert (longer.logprobs or [])[: len(shorter.logprobs or [])] == (shorter.logprobs or [])


def test_a_stream_never_shows_what_may_become_a_stop_string(
    shared: AsyncLLM, offline: LLM, loop: asyncio.Runner
) -> None:
    (whole,) = offline.generate("hello", SamplingParams())
    text = whole.outputs[0].text
    stop = text[4:7]
    outputs = loop.run(collect(shared, "hello", SamplingParams(stop=stop)))
    assert outputs[-1].outputs[0].text == text[: text.index(stop)]
    assert all(output.outputs[0].text in text[: text.index(stop)] for output in outputs)


def test_times_are_in_order(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    for options in ({"stream": True}, {"stream": False}):
        times = loop.run(answer(shared, "hello", SamplingParams(max_tokens=4), **options)).metrics
        seen: list[Any] = [times.arrival_time, times.first_scheduled_time, times.first_token_time, times.finished_time]
        assert None not in seen
        assert seen == sorted(seen)
        assert times.first_token_time != times.finished_time


def test_a_slow_reader_gets_what_it_missed_at_once(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    async def read() -> list[RequestOutput]:
        outputs = shared.generate("hello", SamplingParams(max_tokens=30, ignore_eos=True), "slow")
        first = await anext(outputs)
        await answer(shared, "hello", SamplingParams(max_tokens=30, ignore_eos=True))
        await answer(shared, "hello", SamplingParams(max_tokens=30, ignore_eos=True))
        return [first, *[output async for output in outputs]]

    outputs = loop.run(read())
    assert len(outputs) == 2
    assert len(outputs[-1].outputs[0].token_ids) == 30


def test_scores_beside_answers(shared: AsyncLLM, offline: LLM, loop: asyncio.Runner) -> None:
    targets = ("x", "the end", "hello hello")
    expected = offline.score_target("hello", targets)
    prompt = {"encoder_prompt": "hello", "decoder_prompt": "ab"}
    params = SamplingParams(max_tokens=5, prompt_logprobs=2)
    (wanted,) = offline.generate(prompt, params)

    async def ask() -> tuple[list[TargetScore], list[RequestOutput]]:
        scores = asyncio.gather(*(shared.score_target("hello", target) for target in targets))
        return await scores, await collect(shared, prompt, params)

    scores, outputs = loop.run(ask())
    assert [(each.token_ids, each.logprobs) for each in scores] == [
        (each.token_ids, each.logprobs) for each in expected
    ]
    assert same(outputs[-1], wanted)
    assert all(output.prompt_logprobs == wanted.prompt_logprobs for output in outputs)
    with pytest.raises(RequestError, match="the target '' is empty"):
        loop.run(shared.score_target("hello", ""))
    assert loop.run(shared.score_target("hello", "x", truncate_prompt_tokens=4)).output.truncated == 3


def test_ids_and_stats(shared: AsyncLLM, loop: asyncio.Runner) -> None:
    before = shared.stats
    seconds: list[float] = []
    shared.on_step = seconds.append
    output = loop.run(answer(shared, "new text", SamplingParams(max_tokens=5, ignore_eos=True), "mine"))
    shared.on_step = None
    after = shared.stats
    assert output.request_id == "mine"
    assert after.generation_tokens - before.generation_tokens == 5
    assert after.steps - before.steps == len(seconds) == 5
    assert after.step_seconds - before.step_seconds == pytest.approx(sum(seconds))
    assert after.encoder_cache_queries - before.encoder_cache_queries == 1
    assert after.encoder_tokens - before.encoder_tokens == len(output.encoder_prompt_token_ids or ())
    assert after.prompt_tokens - before.prompt_tokens == len(output.prompt_token_ids)
    assert (after.graph_steps + after.eager_steps) - (before.graph_steps + before.eager_steps) == 5
    assert (after.running, after.waiting, after.self_usage, after.cross_usage) == (0, 0, 0.0, 0.0)
    assert (shared.live, shared.waiting) == (0, 0)


def test_what_is_known_once_ready(shared: AsyncLLM, offline: LLM) -> None:
    assert shared.state == "ready"
    assert shared.config == offline.config
    assert (shared.about.dtype, shared.about.device, shared.about.pages) == ("float32", "cpu", "float32")
    assert shared.about.kv_tokens > 0
    assert shared.get_tokenizer().get_vocab() == offline.get_tokenizer().get_vocab()
