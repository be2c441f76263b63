"""Running many dialogues through one engine: requests are made a little ahead of it, results come back in order.

Owns the loop of the offline API, what an interruption leaves behind, and that one bad prompt costs no other its answer.
"""

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import FrameType
from typing import Generic, Protocol, TypeVar

from transduce.core.request import Output, Request, RuleSpec
from transduce.errors import RequestError, TransduceError
from transduce.frontend.collector import Collector, refused
from transduce.frontend.dialogue import Dialogue, Done, Work, advance
from transduce.frontend.frontend import Frontend, Job
from transduce.frontend.outputs import RequestOutput
from transduce.frontend.progress import Bar
from transduce.rules.prefix import PrefixAllowedTokens

T = TypeVar("T")


class Engine(Protocol):
    """What a batch asks of transduce.engine.Engine."""

    def add(self, request: Request) -> None: ...
    def step(self) -> list[Output]: ...
    def finish(self, request_id: str, index: int, at: int) -> None: ...
    def abort(self, request_id: str) -> None: ...


@dataclass(slots=True, eq=False)
class _Talk(Generic[T]):
    """An open dialogue. asked: how much Work runs or waits for it. outputs: of that, by its place."""

    dialogue: Dialogue[T]
    asked: int = 0
    outputs: dict[int, RequestOutput] = field(default_factory=dict)


class Batch(Generic[T]):
    """One run of some dialogues. `ahead`: requests the engine is given at once, so that it never waits; dialogues are
    begun when it could take more.

    ids: fresh request ids. refused: a dialogue's result where it raises RequestError, for a fresh id. progress: whether
    to show a bar when it takes long.
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
        progress: bool = False,
    ) -> None:
        self._engine = engine
        self._frontend = frontend
        self._silent = deque(enumerate(dialogues))
        self._ahead = ahead
        self._ids = ids
        self._refused = refused
        self._bar = Bar(len(dialogues), progress)
        self._talks: dict[int, _Talk[T]] = {}
        self._waiting: deque[tuple[int, int, Work]] = deque()
        self._live: dict[str, tuple[int, int, Collector]] = {}
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
                while self._silent or self._waiting or self._live:
                    self._fill(interrupted)
                    for output in self._engine.step() if self._live else ():
                        self._take(output)
                    if interrupted():
                        raise KeyboardInterrupt
        finally:
            for request_id in self._live:
                self._engine.abort(request_id)
        return [result for _, result in sorted(self._results.items(), key=itemgetter(0))]

    def _fill(self, interrupted: Callable[[], bool]) -> None:
        """Dialogues that have begun go first: they hold what they have heard."""
        while (self._waiting or self._silent) and len(self._live) < self._ahead and not interrupted():
            if self._waiting:
                self._admit(*self._waiting.popleft())
            else:
                index, dialogue = self._silent.popleft()
                self._talks[index] = _Talk(dialogue)
                self._listen(index, None)

    def _listen(self, index: int, outputs: Sequence[RequestOutput] | None) -> None:
        """Let a dialogue say what follows from the outputs."""
        try:
            said = advance(self._talks[index].dialogue, outputs)
        except RequestError as error:
            self.errors.append(error)
            said = Done(self._refused(next(self._ids), error))
        if isinstance(said, Done):
            del self._talks[index]
            self._results[index] = said.result
            self._bar.update(done=1)
        else:
            assert said, "a dialogue asks for something, or is over"
            self._talks[index].asked = len(said)
            self._waiting += ((index, place, work) for place, work in enumerate(said))

    def _admit(self, index: int, place: int, work: Work) -> None:
        request_id, arrived = next(self._ids), time.time()
        try:
            job = self._frontend.job(request_id, work.prompt, work.params, work.options)
            self._engine.add(_constrained(job, index))
        except RequestError as error:
            self.errors.append(error)
            self._answer(index, place, refused(request_id, error))
        else:
            self._live[request_id] = index, place, Collector(job, arrived)

    def _take(self, output: Output) -> None:
        index, place, collector = self._live[output.request_id]
        for end in collector.add(output):
            self._engine.finish(output.request_id, end.index, end.at)
        self._bar.update(output_tokens=sum(len(delta.tokens) for delta in output.deltas))
        if collector.finished:
            del self._live[output.request_id]
            if collector.error is not None:
                self.errors.append(collector.error)
            self._bar.update(input_tokens=collector.job.input_tokens)
            self._answer(index, place, collector.result())

    def _answer(self, index: int, place: int, output: RequestOutput) -> None:
        talk = self._talks[index]
        talk.outputs[place] = output
        if len(talk.outputs) == talk.asked:
            outputs, talk.outputs = [talk.outputs[at] for at in range(talk.asked)], {}
            self._listen(index, outputs)


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
