"""AsyncLLM: many requests at once, each a stream of outputs, on an engine in a process of its own.

Owns the requests that are inside, and what is said to and by the engine about them. Knows no HTTP and no process.
"""

import asyncio
import gc
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Unpack
from uuid import uuid4

from transduce import engine
from transduce.async_engine.messages import Abort, Finish, Load, Start, Step, Turn, added, portable
from transduce.async_engine.process import ABSENT, State, Supervisor
from transduce.async_engine.stats import Stats
from transduce.async_engine.streams import News, Stream, Streams
from transduce.async_engine.told import told
from transduce.config import EngineConfig, from_options
from transduce.core.params import SamplingParams
from transduce.engine import About
from transduce.errors import EngineDeadError
from transduce.frontend import targets as scoring
from transduce.frontend.collector import Collector, Ends
from transduce.frontend.dialogue import Work, converse
from transduce.frontend.frontend import Frontend, Params, checked
from transduce.frontend.load import load_frontend, load_processor
from transduce.frontend.outputs import RequestOutput, TargetScore
from transduce.frontend.prompts import Prompt, Target
from transduce.media.audio import Audio
from transduce.runtime.checkpoint import open_checkpoint
from transduce.speech.asked import Options, Speech, known
from transduce.speech.transcriber import Transcriber
from transduce.speech.transcription import Tell, Transcription


class AsyncLLM:
    """A model served to many tasks of one event loop at once.

    model: a folder, or a hub id. options: the fields of EngineConfig. load: what loads the engine, in its process.
    Raises ConfigError. Nothing runs before `start`; `async with` starts and shuts down.

    If the engine's process ends, the requests inside fail with EngineDeadError, new ones do while it is started again,
    and then all is as before. Nothing bounds how many requests are inside, nor their bytes: whoever lets them in does.
    frontend, about: once started; what was chosen for the model.
    """

    frontend: Frontend
    about: About

    def __init__(self, model: str | os.PathLike[str], *, load: Load = engine.load, **options: Any) -> None:
        self.config: EngineConfig = from_options(model, options)
        self.on_step: Callable[[float], None] | None = None
        """Called with the seconds that a step took, of each step, in the event loop."""
        self.stats = Stats()
        self._given = self.config
        level = logging.getLogger("transduce").getEffectiveLevel()
        self._engine = Supervisor(Start(load, self.config, level), self._receive, self._died)
        self._starting = asyncio.Lock()
        self._streams = Streams()
        self._leases: dict[str, str] = {}
        self._earlier = Stats()

    @property
    def state(self) -> State:
        """ "failed": the first start did. Requests are taken while "ready"."""
        return "loading" if self._starting.locked() else self._engine.state

    @property
    def live(self) -> int:
        """Requests inside; a recording is one."""
        return len(self._streams)

    @property
    def waiting(self) -> int:
        """Those of them that have not been part of a step yet."""
        return self._streams.waiting()

    def waiting_before(self, priority: int) -> int:
        """Those of `waiting` that one of this priority waits for."""
        return self._streams.waiting(priority)

    def get_tokenizer(self) -> Any:
        """The checkpoint's transformers tokenizer; None with skip_tokenizer_init. Hold `frontend.lock` to use it."""
        return self.frontend.processor.tokenizer

    async def start(self) -> None:
        """Start the engine's process and wait until the model is loaded; nothing happens where that has been done.

        Raises ConfigError or CheckpointError, and EngineDeadError if the process ended over it.
        """
        async with self._starting:
            if self._engine.state in {"stopped", "failed"}:
                await self._start()

    async def _start(self) -> None:
        try:
            checkpoint = await asyncio.to_thread(open_checkpoint, self._given)
            reading = asyncio.to_thread(load_processor, checkpoint, self._given)
            processor, ready = await asyncio.gather(reading, self._engine.start())
            self.frontend = load_frontend(
                checkpoint, processor, self._given, ready.config, ready.about.dtype, ready.room
            )
        except BaseException:
            await self._engine.stop("failed")
            raise
        self.config, self.about = ready.config, ready.about
        gc.freeze()  # as engine.load does, and for the same reason: here, looking through all that holds up the streams

    async def shutdown(self) -> None:
        """End the engine's process. Requests inside raise EngineDeadError."""
        await self._engine.stop()
        self._streams.fail("the engine was shut down")

    async def check_health(self) -> None:
        """Raise EngineDeadError where `generate` would."""
        if self.state != "ready":
            raise EngineDeadError(ABSENT[self.state])

    async def __aenter__(self) -> "AsyncLLM":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    def generate(
        self,
        prompt: Prompt,
        sampling_params: Params | None = None,
        request_id: str | None = None,
        *,
        options: Mapping[str, object] | None = None,
        owner: str = "",
        priority: int = 0,
        stream: bool = True,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The answer so far, time and again, until it is `finished`; without `stream`, only the finished one.

        prompt, sampling_params: as in LLM.generate, one of each. request_id: to `abort` it by. options: the family's
        own, such as language and task. owner: of those that wait, the one whose owner has the fewest running is next.
        priority: lower ones come before others, whose places they take. Text never ends in half a character, nor in
        what may become a stop string.

        Raises RequestError for what is wrong with the request, EngineError where a step failed under it, and
        EngineDeadError where there is no engine. Closing the iterator, or cancelling the task that awaits it, ends the
        request within one step.
        """
        params = SamplingParams() if sampling_params is None else sampling_params
        return self._run(Work(prompt, params, options or {}), Turn(owner, priority), stream, request_id)

    async def abort(self, request_id: str) -> None:
        """End a request within one step: its last output has finish_reason "abort". Unknown ids are ignored."""
        stream = self._streams.named(request_id)
        if stream is not None:
            stream.aborted = True
            if stream.begun:
                self._engine.send(Abort(stream.key))

    async def score_target(
        self,
        source: Prompt,
        target: Target,
        *,
        truncate_prompt_tokens: int | None = None,
        owner: str = "",
        priority: int = 0,
    ) -> TargetScore:
        """How likely the model finds a target for a source, as LLM.score_target has it. Else as in `generate`."""
        await self.check_health()
        scoring.check(self.frontend)
        work = scoring.work(source, target, scoring.params(truncate_prompt_tokens))
        return scoring.score(await self._answer(work, Turn(owner, priority)))

    async def transcribe(
        self,
        audio: Audio,
        language: str | None = None,
        task: str = "transcribe",
        prompt: str | None = None,
        *,
        sampling_params: Params | None = None,
        max_seconds: float | None = None,
        owner: str = "",
        priority: int = 0,
        cache_salt: str | None = None,
        tell: Tell | None = None,
        **options: Unpack[Options],
    ) -> Transcription:
        """As LLM.transcribe. max_seconds: longer is refused. owner: its own, unless given. cache_salt: see `Parts`.

        tell: is told what has been heard so far, in any thread; `stream_transcription` yields it.
        """
        await self.check_health()
        speech = Speech(
            language=language,
            task=task,
            prompt=prompt,
            max_seconds=max_seconds,
            salt=cache_salt,
            **known(options),
        )
        params = SamplingParams() if sampling_params is None else checked(sampling_params)
        dialogue = Transcriber(self.frontend, speech).dialogue(audio, params, tell)
        name = uuid4().hex
        turn = Turn(owner or name, priority, name)
        return await converse(dialogue, partial(self._answer, turn=turn), self._release)

    def stream_transcription(
        self,
        audio: Audio,
        language: str | None = None,
        task: str = "transcribe",
        prompt: str | None = None,
        **options: Any,
    ) -> AsyncGenerator[Transcription, None]:
        """What has been heard so far, time and again, and at last all of it: each text begins the next one.

        A clip comes token by token, and has a single attempt; with a `fallback`, which may decode it again, it comes in
        one go, as do channels by themselves. Longer audio comes window by window.
        options: those of `transcribe`.
        """
        return told(lambda tell: self.transcribe(audio, language, task, prompt, tell=tell, **options))

    async def _answer(self, work: Work, turn: Turn) -> RequestOutput:
        async with aclosing(self._run(work, turn, work.tell is not None)) as outputs:
            while not (output := await anext(outputs)).finished:
                assert work.tell is not None, "nobody asked for what is not finished"
                work.tell(output)
            return output

    def _release(self, outputs: Iterable[RequestOutput]) -> None:
        """Nobody asks about their encoder inputs again."""
        for output in outputs:
            if (key := self._leases.pop(output.request_id, None)) is not None:
                self._engine.send(Abort(key))

    async def _run(
        self, work: Work, turn: Turn, every: bool, request_id: str | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        arrived = time.time()
        await self.check_health()
        with self._entered(request_id, turn, every) as (name, stream):
            params = portable(checked(work.params))
            read = partial(self.frontend.job, name, work.prompt, params, work.options)
            reader = self.frontend.readers.executor(work.prompt, work.options)
            job = await asyncio.get_running_loop().run_in_executor(reader, read)
            await self.check_health()
            stream.begin(Collector(job, arrived, streamed=every))
            self._engine.send(added(job, stream.key, turn, every, work.leases))
            if work.leases:
                self._leases[name] = stream.key
            if stream.aborted:
                self._engine.send(Abort(stream.key))
            while stream.open:
                yield await stream.get()

    @contextmanager
    def _entered(self, request_id: str | None, turn: Turn, every: bool) -> Iterator[tuple[str, Stream]]:
        with self._streams.entered(request_id, turn, every) as (name, stream):
            try:
                yield name, stream
            except Exception:
                self._leases.pop(name, None)  # the engine has none of a request that failed
                raise
            finally:
                if stream.begun and not stream.finished:
                    self._leases.pop(name, None)
                    self._engine.send(Abort(stream.key))

    # What the engine says

    def _receive(self, step: Step) -> Callable[[], None]:
        """In the receiving thread: make results of what a step did, to be handed over."""
        return partial(self._deliver, step, self._streams.take(step.outputs, self._finish))

    def _finish(self, key: str, end: Ends) -> None:
        self._engine.send(Finish(key, end.index, end.at))

    def _deliver(self, step: Step, news: list[tuple[Stream, News]]) -> None:
        self.stats = step.stats.after(self._earlier)
        for stream, each in news:
            stream.put(each)
        for key, error in step.refused:
            self._streams.refuse(key, error)
        if self.on_step is not None:
            for seconds in step.seconds:
                self.on_step(seconds)

    def _died(self, how: str) -> None:
        self.stats = self._earlier = self.stats.ended()
        self._streams.fail(f"the engine process ended ({how}), and this request with it; try again")
