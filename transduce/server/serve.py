"""Serving until told to stop: the port, loading behind it, the start-up log, and an orderly end.

Owns the process: its signals, its event loop and its exit code.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Coroutine, Iterator
from dataclasses import fields
from types import FrameType

import uvicorn
from prometheus_client import ProcessCollector

import transduce
from transduce.async_engine.llm import AsyncLLM
from transduce.config import EngineConfig
from transduce.errors import ConfigError, TransduceError
from transduce.server import logs
from transduce.server.app import create_app
from transduce.server.options import ServeOptions
from transduce.server.service import Service
from transduce.server.sockets import Sockets

log = logging.getLogger(__name__)

FAILED = 1
BACKLOG = 2048
KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than clients and proxies keep one, who would else send a request
into a connection that is just being closed."""
CLOSING = 2
"""Seconds that connections get to close once their requests are done or given up, before they are cut."""


def serve(config: EngineConfig, options: ServeOptions) -> int:
    """Serve the model until SIGTERM or Ctrl-C; returns the exit code: 0, or 1 where it could not be served.

    Why it could not is one line of the log. Raises ConfigError for options that cannot work.
    """
    logs.configure(options)
    llm = AsyncLLM(**{field.name: getattr(config, field.name) for field in fields(config)})
    service = Service(llm, options)
    app = create_app(service)
    try:
        listener = listen(options)
    except ConfigError as error:
        log.error(" ".join(str(error).split()))
        return FAILED
    settings = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws=Sockets,
        ws_max_size=options.max_body_bytes,
        ws_per_message_deflate=False,  # audio does not shrink
        root_path=options.root_path,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=2 * CLOSING,
    )
    return asyncio.run(_Server(settings, service, listener).run_model())


def listen(options: ServeOptions) -> socket.socket:
    """A socket that clients can connect to at once. Raises ConfigError where the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {options.host} port {options.port}: {error.strerror}; "
            "stop what uses it, or give another --host or --port"
        ) from error
    return listener


class _Server(uvicorn.Server):
    """uvicorn with a model behind it. A signal lets requests finish while the port still answers; a second does not."""

    def __init__(self, settings: uvicorn.Config, service: Service, listener: socket.socket) -> None:
        super().__init__(settings)
        self._service = service
        self._listener = listener
        self._tasks: set[asyncio.Task[None]] = set()
        self._told = False
        self._code = 0
        self._open = self._cut = 0

    async def run_model(self) -> int:
        """Load the model and serve it; returns the exit code."""
        self._loop = asyncio.get_running_loop()
        self._begin(self._load())
        try:
            await self.serve(sockets=[self._listener])
        finally:
            await self._end()
        return self._code

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn's signal handlers, between two bytecodes of whatever runs."""
        self._loop.call_soon_threadsafe(self._stop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn to close connections."""
        cutting = self._loop.call_later(CLOSING, self._disconnect)
        await super().shutdown(sockets)
        cutting.cancel()

    def _disconnect(self) -> None:
        """Whose body still comes, or who does not read the answer, is a client that left."""
        for connection in self.server_state.connections:
            connection.transport.abort()

    def _stop(self) -> None:
        if not self._told:
            self._told = True
            self._begin(self._drain())
        elif not self.should_exit:
            self.should_exit = True
            self._begin(self._cut_off())

    async def _load(self) -> None:
        try:
            await self._service.llm.start()
        except TransduceError as error:
            self._fail(error)
        except Exception:
            log.exception("the model could not be loaded")
            self._fail(None)
        else:
            for line in _introduction(self._service, _url(self._listener)):
                log.info(line)

    def _fail(self, error: TransduceError | None) -> None:
        if not self._told:
            self._code = FAILED
            if error is not None:
                log.error(" ".join(str(error).split()))
        self.should_exit = True

    async def _drain(self) -> None:
        self._open = self._service.requests
        log.info("shutting down: no new requests, running ones may finish (%d)", self._open)
        if not await self._service.drain():
            log.warning("requests were still running after %g s", self._service.options.shutdown_timeout)
            await self._cut_off()
        self.should_exit = True

    async def _cut_off(self) -> None:
        """What runs fails, as an answer that says so."""
        self._cut = self._service.requests
        await self._service.llm.shutdown()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._service.llm.shutdown()
        await asyncio.to_thread(self._service.tracing.shutdown)
        if self._told:
            log.info("stopped: %d requests finished, %d were cut off", self._open - self._cut, self._cut)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _introduction(service: Service, url: str) -> Iterator[str]:
    about, config = service.llm.about, service.llm.config
    stored = f", {config.quantization} weights" if config.quantization else ""
    yield f"transduce {transduce.__version__} serves {config.model} as {', '.join(service.names)}"
    yield f"dtype {about.dtype} on {about.device}, attention backend {about.backend}{stored}"
    yield f"KV capacity {about.kv_tokens:,} tokens and {about.kv_rows:,} encoder rows, in {about.pages} pages"
    yield f"largest concurrency {config.max_num_seqs} answers, or {about.most_at_once:.1f} of the longest requests"
    started = _process_start()
    yield f"ready at {url}" + ("" if started is None else f" after {time.time() - started:.1f} s")


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _process_start() -> float | None:
    """When the command was given, in seconds since the epoch; None where the system does not tell."""
    found = (metric for metric in ProcessCollector(registry=None).collect() if "start_time" in metric.name)
    return next((metric.samples[0].value for metric in found), None)
