"""Running many dialogues through one engine: requests are made a little ahead of it, results come back in order.

Owns the loop of the offline API, what an interruption leaves behind, and that one bad prompt costs no other its answer.
"""

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

from transduce.core.output import Output
from transduce.core.request import Request, RuleSpec
from transduce.errors import RequestError, TransduceError
from transduce.frontend.collector import Collector, refused
from transduce.frontend.dialogue import Branches, Dialogue, Done, Work, advance
from transduce.frontend.frontend import Frontend, Job
from transduce.frontend.outputs import RequestOutput
from transduce.frontend.progress import Bar
from transduce.rules.prefix import PrefixAllowedTokens

T = TypeVar("T")

BEGINNING = 2
"""Dialogues that wait for threads at once before they ask anything: more would be ahead of what the engine can take."""


class Engine(Protocol):
    """What a batch asks of transduce.engine.Engine."""

    def add(self, request: Request) -> None: ...
    def step(self) -> list[Output]: ...
    def finish(self, request_id: str, index: int, at: int) -> None: ...
    def abort(self, request_id: str) -> None: ...


@dataclass(slots=True, eq=False)
class _Talk:
    """An open dialogue: the batch's `index`th, or a branch of that. trunk: the dialogue that waits for a branch.

    asked: how much Work runs or waits for it. outputs: of that, by its place. branches: what more it waits for, of
    which so many are `open`. future: what else it waits for. leases: requests of that Work that have them. before:
    those of the Work before.
    """

    dialogue: Dialogue[Any]
    index: int
    trunk: "_Talk | None" = None
    asked: int = 0
    outputs: dict[int, RequestOutput] = field(default_factory=dict)
    branches: Branches | None = None
    open: int = 0
    future: Future[Any] | None = None
    leases: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)

    @property
    def room(self) -> bool:
        """Whether it may have another branch."""
        return self.branches is not None and self.open < self.branches.most

    @property
    def awaited(self) -> Future[Any] | None:
        """What it waits for before it is advanced, or has another branch."""
        if self.branches is None:
            return self.future
        return None if self.branches.coming is None else self.branches.coming()

    @property
    def ready(self) -> bool:
        """Whether it need not wait."""
        return self.awaited is None or self.awaited.done()


class Batch(Generic[T]):
    """One run of some dialogues. `ahead`: requests the engine is given at once, so that it never waits; dialogues are
    begun when it could take more.

    ids: fresh request ids. refused: a dialogue's result where it raises RequestError, for a fresh id. done: told of a
    dialogue's place and result when it ends. bar: what shows how far it is. order: which dialogue is begun first,
    and so on; none: as they are.
    """

    def __init__(
        self,
        engine: Engine,
        frontend: Frontend,
        dialogues: Sequence[Dialogue[T]],
        *,
        ahead: int,
        ids: Iterator[str],
        refused: Callable[[str, RequestError], T],
        done: Callable[[int, T], None] = lambda index, result: None,
        bar: Bar | None = None,
        order: Sequence[int] = (),
    ) -> None:
        self._engine = engine
        self._frontend = frontend
        self._silent = deque((place, dialogues[place]) for place in order or range(len(dialogues)))
        self._ahead = ahead
        self._ids = ids
        self._refused = refused
        self._done = done
        self._bar = bar or Bar(len(dialogues), shown=False)
        self._open: list[_Talk] = []
        self._branching: list[_Talk] = []
        self._idle: list[_Talk] = []
        self._waiting: deque[tuple[_Talk, int, Work]] = deque()
        self._live: dict[str, tuple[_Talk, int, Collector]] = {}
        self._leases: set[str] = set()
        self._results: dict[int, T] = {}
        self.errors: list[TransduceError] = []
        """Why prompts have no answer."""

    def run(self) -> list[T]:
        """The results, in the order of the dialogues; the output of a bad prompt has its `error` set.

        An interruption (Ctrl-C) takes effect after the step that is running; the requests are aborted then, and
        KeyboardInterrupt is raised.
        """
        try:
            with _interruptible() as interrupted, self._bar:
                while self._silent or self._open:
                    self._fill(interrupted)
                    for output in self._engine.step() if self._live else ():
                        self._take(output)
                    if interrupted():
                        raise KeyboardInterrupt
                    if not self._live:
                        self._wait()
        finally:
            for request_id in {*self._live, *self._leases}:
                self._engine.abort(request_id)
            for talk in self._open:
                talk.dialogue.close()
        return [result for _, result in sorted(self._results.items(), key=itemgetter(0))]

    def _fill(self, interrupted: Callable[[], bool]) -> None:
        """Dialogues that have begun go first: they hold what they have heard. Nothing here waits for a thread."""
        while len(self._live) < self._ahead and not interrupted():
            if self._waiting:
                self._admit(*self._waiting.popleft())
            elif (talk := next((each for each in self._idle if each.ready), None)) is not None:
                self._idle.remove(talk)
                self._listen(talk, [])
            elif (trunk := next((each for each in self._branching if each.room and each.ready), None)) is not None:
                self._branch(trunk)
            elif self._silent and len(self._idle) < BEGINNING:
                index, dialogue = self._silent.popleft()
                self._begin(_Talk(dialogue, index))
            else:
                return

    def _wait(self) -> None:
        """Until a thread is done that something waits for, if anything does."""
        talks = (*self._idle, *(each for each in self._branching if each.room))
        futures = [future for future in (each.awaited for each in talks) if future is not None]
        if futures:
            wait(futures, return_when=FIRST_COMPLETED)

    def _begin(self, talk: _Talk) -> None:
        self._open.append(talk)
        self._listen(talk, None)

    def _branch(self, trunk: _Talk) -> None:
        """Begin the next branch, if there is one."""
        assert trunk.branches is not None
        dialogue = next(trunk.branches.dialogues, None)
        if dialogue is None:
            trunk.branches = None
            self._branching.remove(trunk)
            self._rejoin(trunk)
        else:
            trunk.open += 1
            self._begin(_Talk(dialogue, trunk.index, trunk))

    def _rejoin(self, trunk: _Talk) -> None:
        if trunk.branches is None and not trunk.open:
            self._listen(trunk, [])

    def _listen(self, talk: _Talk, outputs: Sequence[RequestOutput] | None) -> None:
        """Let a dialogue say what follows from the outputs."""
        try:
            said = advance(talk.dialogue, outputs)
        except RequestError as error:
            assert talk.trunk is None, "a branch raises no RequestError"
            self.errors.append(error)
            said = Done(self._refused(next(self._ids), error))
        match said:
            case Done(result):
                self._end(talk, result)
            case Branches():
                talk.branches = said
                self._branching.append(talk)
            case Future():
                talk.future = said
                self._idle.append(talk)
            case _:
                assert said, "a dialogue asks for something, or is over"
                talk.asked = len(said)
                self._waiting += ((talk, place, work) for place, work in enumerate(said))

    def _end(self, talk: _Talk, result: Any) -> None:
        self._release(talk.before)
        self._open.remove(talk)
        if talk.trunk is None:
            self._results[talk.index] = result
            self._bar.update(done=1)
            self._done(talk.index, result)
        else:
            talk.trunk.open -= 1
            self._rejoin(talk.trunk)

    def _admit(self, talk: _Talk, place: int, work: Work) -> None:
        request_id, arrived = next(self._ids), time.time()
        try:
            job = self._frontend.job(request_id, work.prompt, work.params, work.options)
            self._engine.add(replace(_constrained(job, talk.index), leases=work.leases))
        except RequestError as error:
            self.errors.append(error)
            self._answer(talk, place, refused(request_id, error))
        else:
            self._live[request_id] = talk, place, Collector(job, arrived)
            if work.leases:
                talk.leases.append(request_id)
                self._leases.add(request_id)

    def _take(self, output: Output) -> None:
        talk, place, collector = self._live[output.request_id]
        for end in collector.add(output):
            self._engine.finish(output.request_id, end.index, end.at)
        self._bar.update(output_tokens=sum(len(delta.tokens) for delta in output.deltas))
        if collector.finished:
            del self._live[output.request_id]
            if collector.error is not None:
                self.errors.append(collector.error)
            self._bar.update(input_tokens=collector.job.input_tokens)
            self._answer(talk, place, collector.result())

    def _answer(self, talk: _Talk, place: int, output: RequestOutput) -> None:
        talk.outputs[place] = output
        if len(talk.outputs) == talk.asked:
            outputs, talk.outputs = [talk.outputs[at] for at in range(talk.asked)], {}
            self._release(talk.before)
            talk.before, talk.leases = talk.leases, []
            self._listen(talk, outputs)

    def _release(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self._leases.remove(request_id)
            self._engine.abort(request_id)


def _constrained(job: Job, index: int) -> Request:
    """The request, with the user's function as a rule: it is told which of the dialogues it is in."""
    function = job.params.prefix_allowed_tokens_fn
    if function is None:
        return job.request
    rule = RuleSpec(PrefixAllowedTokens.name, (function, index))
    return replace(job.request, rules=(*job.request.rules, rule))


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Within, SIGINT only makes the function given return True: a step is not torn apart. A second one raises at once.

    A handler that the application has set is left alone, as are other threads, which get no signals.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    hit = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if hit.is_set():
            raise KeyboardInterrupt
        hit.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield hit.is_set
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
