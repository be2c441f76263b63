"""Results looked at before the end: each is a piece of the whole, and the last is what the end alone would say."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.frontend.fakes import EOS, FIRST, EchoEngine, frontend
from transduce.core.output import Delta, Output
from transduce.core.params import BeamSearchParams, SamplingParams
from transduce.frontend.collector import Collector
from transduce.frontend.outputs import CompletionOutput, RequestOutput
from transduce.models.base import Decode

ARRIVED = 1.0


def collected(prompt: str, streamed: bool, **params: Any) -> list[RequestOutput]:
    """The results after each step."""
    engine = EchoEngine()
    job = frontend(max_len=500).job("0", prompt, SamplingParams(**params))
    collector = Collector(job, ARRIVED, streamed=streamed)
    engine.add(job.request)
    results = []
    while not collector.finished:
        (output,) = engine.step()
        for end in collector.add(output):
            engine.finish("0", end.index, end.at)
        results.append(collector.result())
    return results


def answers(results: Sequence[RequestOutput]) -> list[CompletionOutput]:
    return [result.outputs[0] for result in results]


@given(text=st.text(min_size=1, max_size=30).filter(str.strip), stop=st.text("ab", min_size=1, max_size=3))
def test_streamed_text_grows_to_the_whole(text: str, stop: str) -> None:
    for params in ({}, {"stop": stop, "logprobs": 1}):
        pieces, whole = answers(collected(text, True, **params)), answers(collected(text, False, **params))[-1]
        assert pieces[-1] == whole
        for before, after in zip(pieces, [*pieces[1:], whole], strict=True):
            assert after.text.startswith(before.text)
            assert (after.logprobs or [])[: len(before.logprobs or [])] == (before.logprobs or [])
        if "stop" in params:
            assert stop not in whole.text


def test_half_a_character_is_held_back() -> None:
    assert [answer.text for answer in answers(collected("aé!", True))] == ["a", "a", "aé", "aé!", "aé!"]


def test_what_may_become_a_stop_string_is_held_back() -> None:
    assert [answer.text for answer in answers(collected("abcd", True, stop="cx"))] == ["", "a", "ab", "abc", "abcd"]
    assert [answer.text for answer in answers(collected("abcd", True, stop="cd"))] == ["", "a", "ab", "ab"]


def test_a_result_does_not_change_afterwards() -> None:
    results = collected("abc", True, logprobs=0)
    assert [len(answer.token_ids) for answer in answers(results)] == [1, 2, 3, 4]
    assert [len(answer.logprobs or ()) for answer in answers(results)] == [1, 2, 3, 4]
    assert [result.finished for result in results] == [False, False, False, True]


def test_unstreamed_text_is_decoded_once_and_streamed_text_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    made = frontend(max_len=500)
    decoded: list[int] = []
    decoding = made.processor.decoding

    def counting(*args: Any) -> Decode:
        decode = decoding(*args)
        assert decode is not None

        def counted(ids: Sequence[int]) -> str:
            decoded.append(len(ids))
            return decode(ids)

        return counted

    monkeypatch.setattr(made.processor, "decoding", counting)
    job = made.job("0", "x", SamplingParams())
    outputs = [Output("0", [Delta(0, [100])]) for _ in range(99)] + [Output("0", [Delta(0, [100])], finished=True)]
    for streamed, most in ((False, 100), (True, 1000)):
        decoded.clear()
        collector = Collector(job, ARRIVED, streamed=streamed)
        for output in outputs:
            collector.add(output)
            if streamed or collector.finished:
                collector.result()
        assert sum(decoded) <= most


def test_what_neither_ends_nor_fails_was_aborted() -> None:
    collector = Collector(frontend().job("0", "abc", SamplingParams(n=2, temperature=1.0)), ARRIVED)
    collector.add(Output("0", [Delta(0, [100], finish_reason="stop"), Delta(1, [101])]))
    collector.add(Output("0", finished=True))
    assert [answer.finish_reason for answer in collector.result().outputs] == ["stop", "abort"]


def beams(*outputs: Output, answers: int = 2, **params: Any) -> RequestOutput:
    """What a beam search that wants several answers makes of these."""
    asked = BeamSearchParams(beam_width=3, num_return_sequences=answers, **params)
    collector = Collector(frontend().job("0", "abc", asked), ARRIVED)
    for output in outputs:
        assert collector.add(output) == []
    return collector.result()


def test_beams_have_scores() -> None:
    shared, a, b = (
        [100],
        Delta(0, [101], [], "length", None, -3.0, -1.5),
        Delta(1, [100, EOS], [], "stop", None, -4.0, -2.0),
    )
    result = beams(Output("0", [Delta(0, shared)]), Output("0", [a, b], finished=True))
    found = [(each.token_ids, each.cumulative_logprob, each.score) for each in result.outputs]
    assert found == [([100, 101], -3.0, -1.5), ([100, EOS], -4.0, -2.0)]


def test_beams_may_find_fewer_answers_than_wanted() -> None:
    result = beams(Output("0", [Delta(0, [101], [], "length", None, -3.0, -1.5)], finished=True))
    assert [each.index for each in result.outputs] == [0]


def test_aborted_beams_keep_their_answers() -> None:
    result = beams(Output("0", [Delta(0, [101])]), Output("0", finished=True))
    assert [each.finish_reason for each in result.outputs] == ["abort", "abort"]


def test_a_stop_string_cuts_a_beam_and_its_score() -> None:
    ended = Delta(0, [FIRST + byte for byte in b"abcd"], [], "length", None, -3.0, -1.5)
    (answer,) = beams(Output("0", [ended], finished=True), answers=1, stop="c").outputs
    assert (answer.text, answer.stop_reason, answer.cumulative_logprob, answer.score) == ("ab", "c", None, None)


def test_times_are_the_engines() -> None:
    collector = Collector(frontend().job("0", "abc", SamplingParams()), ARRIVED)
    assert not collector.scheduled
    collector.add(Output("0", scheduled=2.0, first=3.0, last=3.0))
    assert collector.scheduled
    collector.add(Output("0", [Delta(0, [100, 101])], first=4.0, last=5.0))
    collector.add(Output("0", [Delta(0, [100], finish_reason="stop")], finished=True, first=6.0, last=6.0))
    times = collector.result().metrics
    assert (times.arrival_time, times.first_scheduled_time) == (1.0, 2.0)
    assert (times.first_token_time, times.finished_time) == (4.0, 6.0)
