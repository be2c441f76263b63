"""Running many prompts through an engine: requests are made a little ahead of it, answers come back in order.

Owns the loop of the offline API, what an interruption leaves behind, and that one bad prompt costs no other its answer.
"""

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from transduce.core.request import Output, Request
from transduce.errors import RequestError
from transduce.frontend.collector import Collector, refused
from transduce.frontend.frontend import Frontend, Params
from transduce.frontend.outputs import RequestOutput
from transduce.frontend.progress import Bar


class Engine(Protocol):
    """What a batch asks of transduce.engine.Engine."""

    def add(self, request: Request) -> None: ...
    def step(self) -> list[Output]: ...
    def finish(self, request_id: str, index: int, at: int) -> None: ...
    def abort(self, request_id: str) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One prompt to run."""

    prompt: object
    params: Params
    options: Mapping[str, object] = field(default_factory=dict)


class Batch:
    """One run of some Work. `ahead`: requests the engine is given at once, so that it never waits; the rest wait here.

    ids: fresh request ids. progress: whether to show a bar when it takes long.
    """

    def __init__(
        self,
        engine: Engine,
        frontend: Frontend,
        work: Sequence[Work],
        *,
        ahead: int,
        ids: Iterator[str],
        progress: bool = False,
    ) -> None:
        self._engine = engine
        self._frontend = frontend
        self._waiting = deque(enumerate(work))
        self._ahead = ahead
        self._ids = ids
        self._bar = Bar(len(work), progress)
        self._live: dict[str, tuple[int, Collector]] = {}
        self._results: dict[int, RequestOutput] = {}
        self.refusals: list[RequestError] = []
        """Why prompts made no request, as raised."""

    def run(self) -> list[RequestOutput]:
        """The results, in the order of the work; a bad prompt's has its `error` set.

        An interruption (Ctrl-C) takes effect after the step that is running; the requests are aborted then, and
        KeyboardInterrupt is raised.
        """
        try:
            with _interruptible() as interrupted, self._bar:
                while self._waiting or self._live:
                    self._fill(interrupted)
                    for output in self._engine.step() if self._live else ():
                        self._take(output)
                    if interrupted():
                        raise KeyboardInterrupt
        finally:
            for request_id in self._live:
                self._engine.abort(request_id)
        return [result for _, result in sorted(self._results.items())]

    def _fill(self, interrupted: Callable[[], bool]) -> None:
        while self._waiting and len(self._live) < self._ahead and not interrupted():
            self._admit(*self._waiting.popleft())

    def _admit(self, index: int, work: Work) -> None:
        request_id, arrived = next(self._ids), time.time()
        try:
            job = self._frontend.job(request_id, work.prompt, work.params, work.options)
            self._engine.add(job.request)
        except RequestError as error:
            self.refusals.append(error)
            self._results[index] = refused(request_id, error)
            self._bar.update(done=1)
        else:
            self._live[request_id] = index, Collector(job, arrived)

    def _take(self, output: Output) -> None:
        index, collector = self._live[output.request_id]
        for end in collector.add(output):
            self._engine.finish(output.request_id, end.index, end.at)
        self._bar.update(output_tokens=sum(len(delta.tokens) for delta in output.deltas))
        if collector.finished:
            del self._live[output.request_id]
            self._results[index] = collector.result()
            self._bar.update(done=1, input_tokens=collector.job.input_tokens)


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
