"""Service: what routes ask for answers, and the one place that knows how the server fares.

Owns admission, the time a prompt may take, draining, and what metrics, traces and the access log are told. Knows the
engine as an AsyncLLM, and HTTP by the Record that a request carries.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal, TypeVar

from starlette.requests import HTTPConnection, Request

from transduce.async_engine.llm import AsyncLLM
from transduce.core.checks import shown
from transduce.errors import EngineDeadError, TransduceError
from transduce.frontend import chat
from transduce.frontend.frontend import Params
from transduce.frontend.outputs import RequestOutput
from transduce.frontend.prompts import Prompt
from transduce.media.addresses import resolve
from transduce.media.audio import Audio, Samples, seconds
from transduce.media.voice import Voice
from transduce.server.access_log import Record
from transduce.server.errors import Draining, NotServed, Overloaded, TimedOut, TooLarge, Unsupported
from transduce.server.metrics import Metrics
from transduce.server.options import ServeOptions
from transduce.server.tracing import Tracing
from transduce.speech.transcription import Transcription

Answer = TypeVar("Answer")

State = Literal["loading", "ready", "restarting", "failed", "draining"]

LONGEST_RETRY = 60
"""Seconds."""
SMOOTHING = 0.1
"""What one request counts in the mean of times in the queue."""


class Service:
    """The served model. names: what requests may call it; created: when it was, in seconds since the epoch."""

    def __init__(self, llm: AsyncLLM, options: ServeOptions) -> None:
        self.llm = llm
        self.options = options
        self.names = options.served_model_name or (llm.config.model,)
        self.created = int(time.time())
        self.metrics = Metrics(self.names[0], llm)
        self.tracing = Tracing(options.otlp_traces_endpoint)
        self._allowed = replace(chat.policy(llm.config), size=options.max_file_bytes)
        self._resolver = partial(resolve, threads=ThreadPoolExecutor(32, "lookups"))  # a slow one holds only these
        self._queued = 0.0
        self._inside = 0
        self.draining = asyncio.Event()
        """Set when no more requests are taken, and those inside shall come to their end."""
        self._empty = asyncio.Event()
        self._empty.set()
        llm.on_step = self.metrics.step

    @property
    def tasks(self) -> frozenset[str]:
        """What routes can ask the model for: "generate" text, "transcribe" and "translate" speech."""
        processor = self.llm.frontend.processor
        if processor.media != "audio":
            return frozenset({"generate"})
        return frozenset({"transcribe"} if processor.language else {"transcribe", "translate"})

    @property
    def modalities(self) -> tuple[str, ...]:
        """What the model takes: "text", "image" or "audio"."""
        return {None: ("text",), "image": ("text", "image")}.get(self.llm.frontend.processor.media, ("audio",))

    def stamps(self) -> bool:
        """Whether the model of speech writes timestamps. Others' recordings, or windows of them, are one segment."""
        frontend = self.llm.frontend
        with frontend.lock:
            return frontend.processor.clock.zero < frontend.spec.target_vocab

    @property
    def state(self) -> State:
        """The engine's, unless the server itself is about to end. A server whose engine was never started loads."""
        if self.draining.is_set():
            return "draining"
        return "loading" if self.llm.state == "stopped" else self.llm.state

    def closed(self) -> TransduceError | None:
        """Why no HTTP request is taken, whatever it asks for; None: they are. A restarting engine refuses some itself.

        More than can wait or run need not even be read, which bounds the memory that bodies take.
        """
        match self.state:
            case "ready" | "restarting":
                full = self._inside >= self.options.max_waiting + self.llm.config.max_num_seqs
                return self._overloaded(self._inside) if full else None
            case "draining":
                return Draining("the server is shutting down; try another one, or again in a moment")
            case _:
                return EngineDeadError("the model is still loading; try again when /ready answers 200")

    @property
    def requests(self) -> int:
        """HTTP requests inside."""
        return self._inside

    @contextmanager
    def inside(self) -> Iterator[None]:
        """For the time of one HTTP request, which draining waits for."""
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    async def drain(self) -> bool:
        """Take no more requests, and wait shutdown_timeout for those inside; whether all came to their end."""
        self.draining.set()
        try:
            async with asyncio.timeout(self.options.shutdown_timeout):
                return await self._empty.wait()
        except TimeoutError:
            return False

    def check_model(self, name: str | None) -> None:
        """Raises NotServed for a model of another name."""
        if name and name not in self.names:
            raise NotServed(f"no model {shown(name)} here; use {', '.join(self.names)}", "model_not_found", "model")

    def check_speech(self, language: str | None, prompt: str | None) -> None:
        """Raises RequestError for what the model cannot be told about speech in a language; None: in any."""
        frontend = self.llm.frontend
        told = {"language": language or next(iter(frontend.defaults.languages), None), "prompt": prompt}
        with frontend.lock:
            frontend.processor.decoder_ids(None, told)

    def check_room(self, priority: int = 0) -> None:
        """Raises Overloaded if too many prompts wait that one of this priority would wait for."""
        waiting = self.llm.waiting_before(priority)
        if waiting - self._places >= self.options.max_waiting:
            raise self._overloaded(waiting)

    async def generate(
        self,
        http: Request,
        prompt: Prompt,
        params: Params | None,
        *,
        options: Mapping[str, object] | None = None,
        priority: int = 0,
        stream: bool,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The answer so far, time and again, and at last the whole one; not streamed, only that.

        Raises Unsupported for a priority without --priority, Overloaded, TimedOut, and what AsyncLLM.generate raises.
        """
        record: Record = http.state.record
        self._admit(record, priority)
        salted = _salted(prompt, record.salt)
        answers = self.llm.generate(
            salted, params, options=options, owner=record.request_id, priority=priority, stream=stream
        )
        async with aclosing(self._within_time(answers)) as outputs:
            async for output in outputs:
                self._note(record, output)
                yield output

    async def prompt(self, http: Request, turns: Sequence[chat.Turn], priority: int = 0) -> Prompt:
        """What messages make, their images fetched. Raises RequestError, MediaError, and as `generate`."""
        self._admit(http.state.record, priority)
        return await chat.aprompt(turns, self.llm.frontend, self._allowed, self._resolver)

    async def transcribe(
        self,
        http: Request,
        audio: bytes,
        *,
        priority: int = 0,
        stream: bool,
        **options: Any,
    ) -> AsyncGenerator[Transcription, None]:
        """The transcription so far, time and again, and at last the whole one; not streamed, only that.

        audio: the bytes of a file. options: those of AsyncLLM.transcribe. Raises TooLarge for longer audio than the
        server takes, and as `generate`.
        """
        record: Record = http.state.record
        self._admit(record, priority)
        await self._check_length(audio)
        start = self.llm.stream_transcription if stream else self._transcription
        answers = start(
            audio,
            max_seconds=self.options.max_audio_seconds,
            owner=record.request_id,
            priority=priority,
            cache_salt=record.salt or None,
            **options,
        )
        async with aclosing(self._within_time(answers)) as transcriptions:
            async for transcription in transcriptions:
                self._note(record, transcription.output)
                if transcription.output.finished:
                    record.heard(transcription.duration)
                    self.metrics.heard(transcription.duration)
                yield transcription

    async def hear(self, http: HTTPConnection, samples: Samples, rate: int, **options: Any) -> Transcription:
        """What is said in a window of live audio [samples], of which others follow. Raises as `generate`.

        options: those of AsyncLLM.transcribe. It is no audio that was transcribed before its turn is over; see `heard`.
        """
        record: Record = http.state.record
        salt = record.salt or None
        answers = self._transcription((samples, rate), owner=record.request_id, cache_salt=salt, **options)
        async with aclosing(self._within_time(answers)) as transcriptions:
            transcription = await anext(transcriptions)
        self._note(record, transcription.output)
        return transcription

    def heard(self, http: HTTPConnection, seconds: float) -> None:
        """A turn of live audio is over."""
        record: Record = http.state.record
        record.heard((record.audio or 0.0) + seconds)
        self.metrics.heard(seconds)

    @cached_property
    def voice(self) -> Voice:
        """What tells speech from silence in live audio; takes a moment to load. Raises ConfigError."""
        return Voice()

    async def _transcription(self, audio: Audio, **options: Any) -> AsyncGenerator[Transcription, None]:
        yield await self.llm.transcribe(audio, **options)

    def _admit(self, record: Record, priority: int) -> None:
        """All prompts of an HTTP request are let in if its first one is."""
        if priority and not self.options.priority:
            way_out = "this server serves all alike: leave it out, or start the server with --priority"
            raise Unsupported(f"priority={priority}: {way_out}", "priority")
        if not record.admitted:
            self.check_room(priority)
        record.admitted = True

    @property
    def _places(self) -> int:
        """How many of the prompts that wait do so for no other, but for the next step. None where a step left some."""
        llm = self.llm
        return 0 if llm.stats.waiting else max(0, llm.config.max_num_seqs - (llm.live - llm.waiting))

    def _overloaded(self, requests: int) -> Overloaded:
        retry_after = min(LONGEST_RETRY, max(1, math.ceil(self._queued)))
        return Overloaded(f"{requests} requests are before this one; try again later", retry_after)

    async def _check_length(self, audio: bytes) -> None:
        most = self.options.max_audio_seconds
        length = await asyncio.to_thread(seconds, audio)
        if length > most:
            raise TooLarge(f"the audio is {length:.1f} s long and this server takes {most:g} s; send a shorter part")

    async def _within_time(self, answers: AsyncGenerator[Answer, None]) -> AsyncGenerator[Answer, None]:
        """The answers, until request_timeout has passed."""
        most = self.options.request_timeout
        deadline = asyncio.get_running_loop().time() + most
        async with aclosing(answers):
            while True:
                try:
                    async with asyncio.timeout_at(deadline) as clock:
                        answer = await anext(answers, None)
                except TimeoutError:
                    if not clock.expired():
                        raise
                    raise TimedOut(f"no answer within {most:g} s; ask for fewer tokens, or try again later") from None
                if answer is None:
                    return
                yield answer

    def _note(self, record: Record, output: RequestOutput) -> None:
        if not output.finished:
            return
        tokens = [len(answer.token_ids) for answer in output.outputs]
        record.answered(output.metrics, output.encoder_rows + len(output.prompt_token_ids), sum(tokens))
        self.metrics.finished(output.metrics, max(tokens))
        self.tracing.finished(record.request_id, output)
        if record.queued is not None:
            self._queued += SMOOTHING * (record.queued - self._queued)


def _salted(prompt: Prompt, salt: str) -> Prompt:
    """The prompt, sharing encoder outputs only where the salt is the same."""
    if not salt:
        return prompt
    parts = prompt if isinstance(prompt, Mapping) else {"encoder_prompt": prompt}
    return {**parts, "cache_salt": parts.get("cache_salt") or salt}
