"""Batches over an engine that repeats its source: order, errors, stop strings, logprobs and interruption."""

import io
import math
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.frontend.fakes import EOS, FIRST, PAD, EchoEngine, frontend
from transduce.core.output import Delta, Output
from transduce.core.params import SamplingParams
from transduce.core.request import Request
from transduce.errors import EngineError, RequestError
from transduce.frontend import progress
from transduce.frontend.ahead import Ahead
from transduce.frontend.batch import Batch
from transduce.frontend.collector import refused
from transduce.frontend.dialogue import Branches, Dialogue, Work, once
from transduce.frontend.outputs import CompletionOutput, Logprob, RequestOutput
from transduce.frontend.progress import AudioBar, Bar, PageBar


def run(
    prompts: Sequence[object], engine: EchoEngine | None = None, ahead: int = 8, **params: Any
) -> list[RequestOutput]:
    dialogues = [once(Work(prompt, SamplingParams(**params))) for prompt in prompts]
    ids = map(str, count())
    return Batch(engine or EchoEngine(), frontend(), dialogues, ahead=ahead, ids=ids, refused=refused).run()


def answer(prompt: object, **params: Any) -> CompletionOutput:
    (output,) = run([prompt], **params)
    return output.outputs[0]


def ids(text: str) -> list[int]:
    return [FIRST + byte for byte in text.encode()]


def test_an_answer() -> None:
    (output,) = run(["hé"])
    assert output.outputs == [CompletionOutput(0, "hé", [*ids("hé"), EOS], finish_reason="stop")]
    assert (output.encoder_prompt, output.encoder_prompt_token_ids) == ("hé", [*ids("hé"), EOS])
    assert (output.finished, output.truncated, output.error) == (True, 0, None)
    times = output.metrics
    assert times.first_token_time is not None
    assert times.finished_time is not None
    assert times.arrival_time <= times.first_token_time <= times.finished_time


def test_an_order_says_what_is_begun_first() -> None:
    done = list[int]()
    dialogues = [once(Work(prompt, SamplingParams())) for prompt in "abc"]
    given: Any = {"ids": map(str, count()), "refused": refused, "done": lambda place, _: done.append(place)}
    outputs = Batch(EchoEngine(), frontend(), dialogues, ahead=1, order=[2, 0, 1], **given).run()
    assert [output.outputs[0].text for output in outputs] == ["a", "b", "c"]
    assert done == [2, 0, 1]


@given(texts=st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=12), ahead=st.integers(1, 4))
def test_answers_come_in_the_order_of_the_prompts(texts: list[str], ahead: int) -> None:
    assert [output.outputs[0].text for output in run(texts, ahead=ahead)] == texts


def test_a_bad_prompt_costs_no_other_its_answer() -> None:
    engine = EchoEngine(largest=10)
    outputs = run(["one", "", "far too long a text", {"prompt": "two"}, [5, 9999], "three"], engine)
    assert [output.outputs[0].text for output in outputs] == ["one", "", "", "two", "", "three"]
    errors = [output.error or "" for output in outputs]
    assert [bool(error) for error in errors] == [False, True, True, False, True, False]
    assert "is empty" in errors[1]
    assert "20 rows are more than 10" in errors[2]
    assert "9999" in errors[4]
    assert [output.outputs[0].finish_reason for output in outputs] == [
        "stop",
        "error",
        "error",
        "stop",
        "error",
        "stop",
    ]


def test_a_dialogue_goes_on_from_what_it_hears_while_others_run() -> None:
    def echo(*prompts: str) -> Dialogue[list[str]]:
        heard = []
        for prompt in prompts:
            outputs = yield [Work(f"{prompt}{number}", SamplingParams()) for number in (1, 2)]
            heard += [output.error or output.outputs[0].text for output in outputs]
        return heard

    def failing() -> Dialogue[list[str]]:
        yield [Work("one", SamplingParams())]
        raise RequestError("not like this")

    engine = EchoEngine()
    dialogues = [echo("a", "b", "c"), failing(), echo("long text")]
    batch = Batch(
        engine, frontend(), dialogues, ahead=4, ids=map(str, count()), refused=lambda id_, error: [str(error)]
    )
    assert batch.run() == [
        ["a1", "a2", "b1", "b2", "c1", "c2"],
        ["not like this"],
        ["long text1", "long text2"],
    ]
    assert [str(error) for error in batch.errors] == ["not like this"]


def test_branches_are_begun_when_there_is_room_and_keep_what_they_lease_until_the_next_answer() -> None:
    class Leasing(EchoEngine):
        def __init__(self) -> None:
            super().__init__()
            self.leases: list[str] = []
            self.most = 0

        def add(self, request: Request) -> None:
            super().add(request)
            self.leases += [request.request_id] * request.leases
            self.most = max(self.most, len(self.requests))

        def abort(self, request_id: str) -> None:
            self.leases.remove(request_id)

    heard: dict[str, list[str]] = {}
    engine = Leasing()

    def branch(name: str) -> Dialogue[None]:
        for number in (1, 2, 3):
            (output,) = yield [Work(f"{name}{number}", SamplingParams(), leases=number < 3)]
            heard.setdefault(name, []).append(output.outputs[0].text)
            assert output.request_id in engine.leases or number == 3

    def trunk(names: str, most: int) -> Dialogue[str]:
        (output,) = yield [Work("first", SamplingParams())]
        yield Branches(map(branch, names), most)
        return output.outputs[0].text + "".join(each for name in names for each in heard[name])

    dialogues = [trunk("abc", 2), trunk("", 2), trunk("defgh", 8)]
    batch = Batch(engine, frontend(), dialogues, ahead=6, ids=map(str, count()), refused=lambda id_, error: str(error))
    first, second, third = batch.run()
    assert (first, second) == ("firsta1a2a3b1b2b3c1c2c3", "first")
    assert third == "first" + "".join(f"{name}{number}" for name in "defgh" for number in (1, 2, 3))
    assert (engine.leases, engine.requests) == ([], {})
    assert 4 <= engine.most <= 6


def test_nobody_waits_for_a_thread_while_there_is_work_and_an_early_end_leaves_none_behind() -> None:
    """The first branch's thread goes on only when the other dialogue has its answer."""
    answered, threads = threading.Event(), list[threading.Thread]()

    def made() -> Iterator[Dialogue[None]]:
        threads.append(threading.current_thread())
        assert answered.wait(60)
        yield from map(branch, "ab")

    def branch(name: str) -> Dialogue[None]:
        (output,) = yield [Work(name, SamplingParams())]
        heard.append(output.outputs[0].text)

    def slow(fails: bool = False) -> Dialogue[str]:
        with Ahead(made(), 1) as dialogues:
            yield Branches(dialogues, 2, dialogues.coming)
            yield dialogues.coming()
            if fails:
                raise ValueError("no answer")
        return "".join(heard)

    def quick() -> Dialogue[str]:
        (output,) = yield [Work("quick", SamplingParams())]
        answered.set()
        return output.outputs[0].text

    def run(dialogues: Sequence[Dialogue[str]]) -> list[str]:
        ids = map(str, count())
        return Batch(EchoEngine(), frontend(), dialogues, ahead=4, ids=ids, refused=lambda id_, error: "").run()

    heard: list[str] = []
    assert run([slow(), quick()]) == ["ab", "quick"]
    with pytest.raises(ValueError, match="no answer"):
        run([slow(), slow(fails=True)])
    assert len(threads) == 3
    assert not any(thread.is_alive() for thread in threads)


class Unreadable:
    """A prompt whose every method raises."""

    def __repr__(self) -> str:
        raise OverflowError("no text")

    def __iter__(self) -> Iterator[int]:
        raise OverflowError("no items")


def test_what_a_prompts_own_code_raises_is_its_own_error(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = run([Unreadable(), "one"])
    assert bad.error == "the prompt could not be read (OverflowError: no items); the log has the traceback"
    assert good.outputs[0].text == "one"
    (record,) = caplog.records
    assert record.exc_info is not None


def test_a_step_that_fails_ends_its_requests_only() -> None:
    class Failing(EchoEngine):
        def step(self) -> list[Output]:
            if self.steps == 1 and "0" in self.requests:
                self.abort("0")
                return [Output("0", finished=True, error=EngineError("the step failed"))]
            return super().step()

    first, second = run(["one", "two"], Failing(), ahead=1)
    assert (first.error, first.outputs[0].text, first.outputs[0].finish_reason) == ("the step failed", "o", "error")
    assert first.metrics.first_token_time is not None
    assert (second.error, second.outputs[0].text) == (None, "two")


def test_a_stop_string_ends_one_hypothesis_and_tells_the_engine() -> None:
    engine = EchoEngine()
    (output,) = run(["one two three"], engine, stop="two")
    assert output.outputs == [
        CompletionOutput(0, "one ", ids("one two"), finish_reason="stop", stop_reason="two"),
    ]
    assert engine.requests == {}
    assert engine.steps == len("one two")


def test_a_stop_string_may_be_kept() -> None:
    assert answer("one two three", stop=["two"], include_stop_str_in_output=True).text == "one two"


def test_a_stop_string_at_the_very_end_needs_no_word_to_the_engine() -> None:
    found = answer("one two", stop="two", max_tokens=7)
    assert (found.text, found.finish_reason, found.stop_reason) == ("one ", "stop", "two")


def test_tokens_after_a_stop_string_in_the_same_step_are_dropped() -> None:
    class Hasty(EchoEngine):
        def step(self) -> list[Output]:
            steps = [super(Hasty, self).step() for _ in range(5)]
            tokens = [token for (output,) in steps for token in output.deltas[0].tokens]
            return [Output("0", [Delta(0, tokens)])]

    assert answer_with(Hasty(), "abcdefghijklmnopqr", stop="h").token_ids == ids("abcdefgh")


def answer_with(engine: EchoEngine, prompt: object, **params: Any) -> CompletionOutput:
    return run([prompt], engine, **params)[0].outputs[0]


def test_a_stop_token_ends_the_text_and_is_named() -> None:
    found = answer("one two", stop_token_ids=ids("w"))
    assert (found.text, found.token_ids, found.stop_reason) == ("one t", ids("one tw"), ids("w")[0])
    assert answer("one two", stop_token_ids=ids("w"), include_stop_str_in_output=True).text == "one tw"


def test_length_and_ignored_eos() -> None:
    found = answer("one", max_tokens=2)
    assert (found.text, found.finish_reason) == ("on", "length")
    longer = answer("one", max_tokens=6, ignore_eos=True)
    assert (longer.token_ids, longer.finish_reason) == ([*ids("one"), EOS, EOS, EOS], "length")


def test_special_tokens_are_shown_when_asked_for() -> None:
    assert answer("a", max_tokens=3, ignore_eos=True, skip_special_tokens=False).text == "a</s></s>"
    assert answer("a", max_tokens=3, ignore_eos=True).text == "a"


def test_samples_are_separate_answers() -> None:
    (output,) = run(["ab"], n=3)
    assert [(found.index, found.text) for found in output.outputs] == [(0, "ab"), (1, "ab"), (2, "ab")]


def test_logprobs_only_when_asked_for() -> None:
    assert answer("a").logprobs is None
    assert answer("a").cumulative_logprob is None
    found = answer("a", logprobs=2)
    assert found.cumulative_logprob == -1.0
    assert found.logprobs == [
        {ids("a")[0]: Logprob(-0.5, 1, "a"), PAD: Logprob(-1.0, 2, "")},
        {EOS: Logprob(-0.5, 1, ""), PAD: Logprob(-1.0, 2, "")},
    ]
    assert answer("a", logprobs=0).logprobs == [{ids("a")[0]: Logprob(-0.5, None, "a")}, {EOS: Logprob(-0.5, None, "")}]


def test_logprobs_end_with_the_text() -> None:
    found = answer("one two", stop="n", logprobs=0)
    assert len(found.logprobs or ()) == len(found.token_ids) == 2
    assert found.cumulative_logprob == -1.0


def test_truncation_is_reported() -> None:
    (output,) = run(["hello"], truncate_prompt_tokens=3)
    assert (output.truncated, output.outputs[0].text) == (3, "he")


def test_memory_is_bounded_by_running_a_little_ahead() -> None:
    class Watched(EchoEngine):
        most = 0

        def step(self) -> list[Output]:
            self.most = max(self.most, len(self.requests))
            return super().step()

    engine = Watched()
    run(["abc"] * 20, engine, ahead=4)
    assert engine.most == 4


def test_an_interruption_waits_for_the_step_and_aborts() -> None:
    class Interrupted(EchoEngine):
        completed = 0

        def step(self) -> list[Output]:
            outputs = super().step()
            if self.steps == 2:
                os.kill(os.getpid(), signal.SIGINT)
            self.completed += 1
            return outputs

    engine = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        run(["one", "two"], engine)
    assert engine.completed == engine.steps == 2
    assert sorted(engine.aborted) == ["0", "1"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [output.outputs[0].text for output in run(["again"], engine)] == ["again"]


def test_an_applications_own_handler_is_left_alone() -> None:
    hits: list[int] = []

    class Interrupted(EchoEngine):
        def step(self) -> list[Output]:
            if self.steps == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return super().step()

    previous = signal.signal(signal.SIGINT, lambda number, frame: hits.append(number))
    try:
        assert run(["one"], Interrupted())[0].outputs[0].text == "one"
    finally:
        signal.signal(signal.SIGINT, previous)
    assert hits == [signal.SIGINT]


def test_other_threads_may_run_batches() -> None:
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.extend(o.outputs[0].text for o in run(["one"])))
    thread.start()
    thread.join()
    assert texts == ["one"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("terminal", "shown", "seen"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_bar_is_drawn_on_terminals_only(terminal: bool, shown: bool, seen: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    with Bar(3, shown, console) as bar:
        bar.update(done=2, input_tokens=10, output_tokens=5)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert ("2/3" in text and "tokens/s" in text) == seen
    assert bool(text) == seen


@pytest.mark.usefixtures("impatient")
def test_a_bar_of_audio_counts_what_is_heard_of_each_recording() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, no_color=True)
    with AudioBar(3, True, console) as bar:
        bar.hear(0, 30.0, 60.0)
        bar.hear(1, 1200.0, math.inf)
        bar.hear(0, 60.0, 60.0)
        bar.update(done=1)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "0/3" in text
    assert "1/3" in text
    assert "1,260 s of audio, " in text
    assert " × real time" in text


@pytest.mark.usefixtures("impatient")
def test_a_bar_of_documents_counts_pages() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, no_color=True)
    with PageBar(2, True, console) as bar:
        for _ in range(3):
            bar.read()
        bar.update(done=1)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "1/2" in text
    assert "3 pages, " in text
    assert " pages/s" in text


def test_short_work_draws_no_bar() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with Bar(3, True, console) as bar:
        bar.update(done=3)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == ""
