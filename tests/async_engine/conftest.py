"""One text checkpoint, one AsyncLLM over it that tests share, and an event loop for both."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.async_engine.support import OPTIONS, mean
from tests.folders import text_folder
from transduce import LLM, AsyncLLM

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 40}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_folder(tmp_path_factory.mktemp("bart"), GENERATION)


@pytest.fixture(scope="session")
def offline(folder: Path) -> LLM:
    return LLM(folder, **OPTIONS)


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def shared(folder: Path, loop: asyncio.Runner) -> Iterator[AsyncLLM]:
    """A running AsyncLLM whose engine survives what tests do to it; its coroutines run on `loop`."""
    llm = AsyncLLM(folder, load=mean, **OPTIONS)
    loop.run(llm.start())
    yield llm
    loop.run(llm.shutdown())
