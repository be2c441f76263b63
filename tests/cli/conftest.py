"""Tiny checkpoints to point the command line at, and running it in this process."""

import signal
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.folders import text_folder, whisper_folder
from transduce import LLM, cli

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 16}
FLAGS = ("--dtype", "float32", "--max-num-seqs", "4")
ENTRY = "import sys; from transduce.cli import main; sys.exit(main())"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", autouse=True)
def small_cache() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CPU_KVCACHE_SPACE", "0.001")
        yield


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(text_folder(tmp_path_factory.mktemp("bart"), GENERATION))


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(whisper_folder(tmp_path_factory.mktemp("whisper"), seed=0))


@pytest.fixture(scope="module")
def answers(bart: str) -> dict[str, str]:
    texts = ["hello", "a cab", "the end"]
    outputs = LLM(bart, dtype="float32").generate(texts)
    found = {text: output.outputs[0].text for text, output in zip(texts, outputs, strict=True)}
    assert len(set(found.values())) == len(texts)
    return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C as it was, where a command that it ended has it ignored."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def clip(path: Path, hertz: float, seconds: float = 0.5, channels: int = 1) -> str:
    times = np.arange(int(16_000 * seconds)) / 16_000
    samples = (np.sin(2 * np.pi * hertz * times) * 30_000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.repeat(channels).tobytes())
    return str(path)
