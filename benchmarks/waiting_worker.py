"""CTranslate2 behind HTTP: a worker thread takes all requests that wait into one `translate_batch` call, and so on.

    python -m benchmarks.waiting_worker FOLDER --port PORT [--max-batch 32] [--workers 1]

It answers POST /v1/completions with token ids as prompt, unstreamed, once the request's batch is done. An answer ends
at its own `max_tokens`, and the batch goes on without it: as it would at an end-of-sequence token, which random
weights do not give.
"""

import argparse
import asyncio
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Thread
from typing import Any

import ctranslate2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.worker import cores


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request: source tokens, how many to generate, and where its answer goes."""

    source: list[str]
    wanted: int
    answer: asyncio.Future[list[str]]

    def settle(self, tokens: list[str]) -> None:
        """From another thread."""
        self.answer.get_loop().call_soon_threadsafe(self.answer.set_result, tokens)


class Batcher:
    """Threads that each translate what waits, at most `max_batch` requests at a time."""

    def __init__(self, folder: str, max_batch: int, workers: int) -> None:
        threads = max(1, cores() // workers)
        self._translator = ctranslate2.Translator(folder, "cpu", inter_threads=workers, intra_threads=threads)
        self._queue: Queue[Waiting] = Queue()
        self._max_batch = max_batch
        for _ in range(workers):
            Thread(target=self._work, daemon=True).start()

    async def completions(self, request: Request) -> JSONResponse:
        """OpenAI's route, as far as it is needed here."""
        body = await request.json()
        source = [f"t{token}" for token in body["prompt"]]
        waiting = Waiting(source, body["max_tokens"], asyncio.get_running_loop().create_future())
        self._queue.put(waiting)
        tokens = await waiting.answer
        usage = {"prompt_tokens": len(source), "completion_tokens": len(tokens)}
        return JSONResponse({"choices": [{"index": 0, "text": " ".join(tokens)}], "usage": usage})

    def _work(self) -> None:
        while True:
            batch = self._waiting()
            for each, tokens in zip(batch, self._translate(batch), strict=True):
                each.settle(tokens)

    def _waiting(self) -> list[Waiting]:
        batch = [self._queue.get()]
        try:
            while len(batch) < self._max_batch:
                batch.append(self._queue.get_nowait())
        except Empty:
            pass
        return batch

    def _translate(self, batch: list[Waiting]) -> list[list[str]]:
        longest = max(each.wanted for each in batch)
        answers: list[Any] = self._translator.translate_batch(
            [each.source for each in batch],
            beam_size=1,
            min_decoding_length=longest,
            max_decoding_length=longest,
            max_input_length=0,
            callback=lambda step: step.step + 1 >= batch[step.batch_id].wanted,
        )
        return [answer.hypotheses[0] for answer in answers]


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    batcher = Batcher(args.folder, args.max_batch, args.workers)
    routes = [
        Route("/ready", lambda request: JSONResponse({})),
        Route("/v1/completions", batcher.completions, methods=["POST"]),
    ]
    uvicorn.run(Starlette(routes=routes), port=args.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
