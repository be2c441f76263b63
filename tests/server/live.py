"""A real server over a real engine of a tiny random model, a client of it, and the offline API as its oracle."""

import wave
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI
from openai import OpenAI

from tests.offline import load
from tests.server.canned import serving
from transduce import LLM
from transduce.async_engine.llm import AsyncLLM
from transduce.server.app import create_app
from transduce.server.options import ServeOptions
from transduce.server.service import Service

MODEL = "tiny"
ENGINE: dict[str, Any] = {"dtype": "float32", "kv_cache_bytes": 1 << 20}


@dataclass(frozen=True, slots=True)
class Live:
    """openai: the official client. http: a plain one. offline: the same model, without a server."""

    openai: OpenAI
    http: httpx.Client
    offline: LLM


@contextmanager
def live(folder: Path, engine: Mapping[str, Any] = ENGINE, **options: Any) -> Iterator[Live]:
    """A server of the model in a folder; engine: as in EngineConfig, options: as in ServeOptions."""
    llm = AsyncLLM(folder, **engine)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with llm:
            yield

    outer = FastAPI(openapi_url=None, lifespan=life)
    outer.mount("/", create_app(Service(llm, ServeOptions(served_model_name=(MODEL,), **options))))
    with (
        serving(outer) as address,
        OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as openai,
        httpx.Client(base_url=address, timeout=60) as http,
    ):
        yield Live(openai, http, load(folder, **engine))


def tone(hertz: float, seconds: float = 0.5) -> bytes:
    """A WAV file."""
    rate = 16_000
    samples = (np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate) * 9_000).astype("<i2")
    file = BytesIO()
    with wave.open(file, "wb") as clip:
        clip.setnchannels(1)
        clip.setsampwidth(2)
        clip.setframerate(rate)
        clip.writeframes(samples.tobytes())
    return file.getvalue()
