"""What the engine's process says, and when: one message a turn at most, and no more than there is to say."""

from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.engine.support import Ask, engine, request, start
from tests.models import cases
from tests.models.tiny import checkpoint
from transduce.async_engine import worker
from transduce.async_engine.messages import Abort, Add, Finish, Step, ToEngine
from transduce.async_engine.worker import Worker
from transduce.core.request import Request, RuleSpec
from transduce.engine import Engine
from transduce.errors import CapacityError, EngineError, RequestError

BART = cases.BART[0]
MADE = checkpoint(BART)


class Parent:
    """The other end of a worker's pipe."""

    def __init__(self, made: Engine, ours: Connection, theirs: Connection) -> None:
        self.engine = made
        self.connection = ours
        self.worker = Worker(made, theirs)

    def turn(self, *messages: ToEngine) -> Step | None:
        """One turn of the worker that receives these; what it says, if anything."""
        for message in messages:
            self.connection.send(message)
        self.worker.turn()
        if not self.connection.poll():
            return None
        step: Step = self.connection.recv()
        assert not self.connection.poll(), "two messages in one turn"
        return step

    def said(self, *messages: ToEngine) -> Step:
        step = self.turn(*messages)
        assert step is not None
        return step


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parent]:
    monkeypatch.setattr(worker, "PATIENCE", float("inf"))
    ours, theirs = Pipe()
    with ours, theirs:
        yield Parent(engine(BART, tmp_path, max_num_seqs=2, speculate=False).engine, ours, theirs)


def asked(name: str, tokens: int = 5, source: int = 0) -> Request:
    return request(MADE, Ask(source, (start(BART),), tokens), name)


def tokens(step: Step) -> dict[str, int]:
    """New tokens by request."""
    return {output.request_id: sum(len(delta.tokens) for delta in output.deltas) for output in step.outputs}


def test_streams_have_a_message_each_step(parent: Parent) -> None:
    first = parent.said(Add(asked("a"), quiet=False), Add(asked("b", 2), quiet=False))
    assert tokens(first) == {"a": 1, "b": 1}
    assert all(output.scheduled is not None for output in first.outputs)
    assert (first.stats.running, first.stats.steps, len(first.seconds)) == (2, 1, 1)
    second = parent.said()
    assert tokens(second) == {"a": 1, "b": 1}
    assert [(output.finished, output.scheduled) for output in second.outputs] == [(False, None), (True, None)]


def test_a_quiet_request_is_said_to_start_and_then_its_whole(parent: Parent) -> None:
    first = parent.said(Add(asked("a"), quiet=True))
    assert tokens(first) == {"a": 0}
    assert first.outputs[0].scheduled is not None
    assert [parent.turn() for _ in range(3)] == [None] * 3
    last = parent.said()
    (output,) = last.outputs
    assert tokens(last) == {"a": 5}
    assert len(output.deltas) == 1
    assert len(output.deltas[0].logprobs) == 5
    assert output.finished
    assert first.outputs[0].scheduled < output.first < output.last
    assert len(last.seconds) == 4


def test_who_waits_is_not_said_to_have_started(parent: Parent) -> None:
    step = parent.said(*(Add(asked(name), quiet=True) for name in "abc"))
    assert tokens(step) == {"a": 0, "b": 0}
    assert (step.stats.running, step.stats.waiting) == (2, 1)


def test_stats_are_said_now_and_then(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    parent.turn(Add(asked("a"), quiet=True))
    assert parent.turn() is None
    monkeypatch.setattr(worker, "PATIENCE", 0.0)
    step = parent.said()
    assert step.outputs == []
    assert len(step.seconds) == 2
    assert step.stats.self_usage > 0


@pytest.mark.parametrize("quiet", [True, False])
def test_an_abort_frees_all_before_the_next_step(quiet: bool, parent: Parent) -> None:
    parent.turn(Add(asked("a", 20), quiet=quiet))
    step = parent.said(Abort("a"))
    (output,) = step.outputs
    assert output.finished
    assert (step.stats.running, step.stats.self_usage, step.stats.cross_usage, step.stats.steps) == (0, 0.0, 0.0, 1)
    assert tokens(step) == {"a": 1 if quiet else 0}
    assert not parent.engine.unfinished


def test_who_leaves_before_the_engine_has_looked_is_never_begun(parent: Parent) -> None:
    step = parent.said(Add(asked("gone"), quiet=False), Abort("gone"), Add(asked("here", source=1), quiet=False))
    assert (step.stats.running, step.stats.waiting, step.stats.encoder_cache_queries) == (1, 0, 1)
    assert tokens(step) == {"here": 1, "gone": 0}


def test_a_stop_string_ends_a_request(parent: Parent) -> None:
    parent.turn(Add(asked("a", 20), quiet=False))
    step = parent.said(Finish("a", 0, 1))
    assert step.outputs == []
    assert (step.stats.running, step.stats.generation_tokens) == (0, 1)


def test_what_cannot_be_added_is_said_with_the_reason(
    parent: Parent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    large = Add(asked("large", 1_000_000), quiet=True)
    ruled = Add(replace(asked("ruled"), rules=(RuleSpec("allowed_tokens", ((99,),)),)), quiet=True)
    step = parent.said(large, ruled, Add(asked("good"), quiet=False))
    assert [(name, type(error)) for name, error in step.refused] == [("large", CapacityError), ("ruled", RequestError)]
    assert tokens(step) == {"good": 1}

    def bug(request: Request) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(parent.engine.scheduler, "add", bug)
    step = parent.said(Add(asked("unlucky"), quiet=True))
    ((name, error),) = step.refused
    assert (name, type(error), str(error)) == (
        "unlucky",
        EngineError,
        "the request failed: ZeroDivisionError: a bug",
    )
    assert "could not be added" in caplog.text
    assert tokens(step) == {"good": 1}
