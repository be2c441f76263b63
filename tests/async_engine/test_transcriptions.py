"""Speech by AsyncLLM: what LLM hears, whole or as it comes."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.async_engine.support import OPTIONS, PATIENCE
from tests.folders import whisper_folder
from tests.test_transcribe import CLIPS
from transduce import LLM, AsyncLLM, MediaError, RequestError, SamplingParams, Transcription

PARAMS = SamplingParams(max_tokens=12)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whisper_folder(tmp_path_factory.mktemp("whisper"), seed=10)


@pytest.fixture(scope="module")
def hearing(speech: Path, loop: asyncio.Runner) -> Iterator[AsyncLLM]:
    llm = AsyncLLM(speech, **OPTIONS)
    loop.run(llm.start())
    yield llm
    loop.run(llm.shutdown())


def about(said: Transcription) -> tuple[str, str | None, list[int]]:
    return said.text, said.language, said.output.outputs[0].token_ids


@pytest.mark.parametrize(
    "asked", [{}, {"language": "fr", "task": "translate", "prompt": "before"}, {"language": "de", "timestamps": True}]
)
def test_transcriptions_are_those_of_llm(
    asked: dict[str, Any], hearing: AsyncLLM, speech: Path, loop: asyncio.Runner
) -> None:
    options = asked | {"sampling_params": PARAMS}
    expected = LLM(speech, **OPTIONS).transcribe(list(CLIPS), **options)

    async def whole() -> list[Transcription]:
        return await asyncio.gather(*(hearing.transcribe(clip, **options) for clip in CLIPS))

    async def streamed() -> list[list[Transcription]]:
        streams = [hearing.stream_transcription(clip, **options) for clip in CLIPS]
        return [[said async for said in stream] for stream in streams]

    async def all_of_it() -> tuple[list[Transcription], list[list[Transcription]]]:
        async with asyncio.timeout(PATIENCE):
            return await whole(), await streamed()

    heard, streams = loop.run(all_of_it())
    assert [about(said) for said in heard] == [about(said) for said in expected]
    assert [about(stream[-1]) for stream in streams] == [about(said) for said in expected]
    assert all(len(stream) > 1 for stream in streams)
    assert {said.language for stream in streams for said in stream} == {said.language for said in expected}


def test_detection_and_transcription_share_one_encoding(hearing: AsyncLLM, loop: asyncio.Runner) -> None:
    before = hearing.stats
    loop.run(hearing.transcribe(CLIPS[0], sampling_params=PARAMS, cache_salt="mine"))
    assert hearing.stats.encoder_tokens - before.encoder_tokens == 50
    assert hearing.stats.encoder_cache_hits - before.encoder_cache_hits == 1
    loop.run(hearing.transcribe(CLIPS[0], "de", sampling_params=PARAMS, cache_salt="yours"))
    assert hearing.stats.encoder_tokens - before.encoder_tokens == 100


def test_bad_clips_raise(hearing: AsyncLLM, loop: asyncio.Runner) -> None:
    with pytest.raises(MediaError, match="cannot read audio of 5 bytes"):
        loop.run(hearing.transcribe(b"noise"))
    with pytest.raises(RequestError, match="language 'xx' is unknown"):
        loop.run(hearing.transcribe(CLIPS[0], "xx"))
    assert hearing.live == 0


def test_a_closed_transcription_leaves_nothing(hearing: AsyncLLM, loop: asyncio.Runner) -> None:
    async def leave() -> None:
        async with aclosing(hearing.stream_transcription(CLIPS[0], sampling_params=PARAMS)) as said:
            await anext(said)
            assert hearing.live == 1
        assert hearing.live == 0

    loop.run(leave())
