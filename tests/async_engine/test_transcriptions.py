"""Speech by AsyncLLM: what LLM hears, whole or as it comes."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.async_engine.support import OPTIONS, PATIENCE
from tests.folders import whisper_folder
from tests.speech.test_parallel import DOUBTFUL, SHORT, joined
from tests.test_transcribe import CLIPS, tone
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


def about(said: Transcription) -> tuple[Any, ...]:
    words = [word.word for segment in said.segments for word in segment.words or ()]
    return said.text, said.language, said.output.outputs[0].token_ids, words


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"language": "fr", "task": "translate", "prompt": "before"},
        {"language": "de", "timestamps": True, "word_timestamps": True},
    ],
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


def test_long_audio_is_heard_as_llm_hears_it(hearing: AsyncLLM, speech: Path, loop: asyncio.Runner) -> None:
    long, params = tone(300, 2.3), SamplingParams(temperature=0.0, max_tokens=12)
    expected = LLM(speech, **OPTIONS).transcribe(long, sampling_params=params)

    async def twice() -> list[Transcription]:
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(*(hearing.transcribe(long, sampling_params=params) for _ in range(2)))

    for said in loop.run(twice()):
        assert about(said) == about(expected)
        assert (said.segments, said.duration) == (expected.segments, 2.3)
    assert len({segment.seek for segment in expected.segments}) > 1
    with pytest.raises(MediaError, match="longer than 2 s"):
        loop.run(hearing.transcribe(long, max_seconds=2.0))


def test_speech_between_silences_is_heard_as_llm_hears_it(
    hearing: AsyncLLM, speech: Path, loop: asyncio.Runner
) -> None:
    recording, before = joined(1.0), hearing.stats.encoder_tokens
    asked: dict[str, Any] = {"vad_filter": SHORT, "fallback": DOUBTFUL, "sampling_params": SamplingParams(max_tokens=6)}
    llm = LLM(speech, **OPTIONS)
    expected = llm.transcribe(recording, **asked)

    async def streamed() -> list[Transcription]:
        async with asyncio.timeout(PATIENCE):
            return [said async for said in hearing.stream_transcription(recording, **asked)]

    *parts, whole = loop.run(streamed())
    assert (whole.text, whole.segments, whole.duration) == (expected.text, expected.segments, expected.duration)
    assert len(parts) > 5
    assert all(later.text.startswith(sooner.text) for sooner, later in pairwise([*parts, whole]))
    assert hearing.stats.encoder_tokens - before == llm.engine.scheduler.counters.encoded_rows


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


@pytest.mark.parametrize("audio", [CLIPS[0], tone(300, 4.3)], ids=["clip", "long"])
def test_a_closed_transcription_leaves_nothing(audio: Any, hearing: AsyncLLM, loop: asyncio.Runner) -> None:
    async def leave() -> None:
        before = asyncio.all_tasks()
        async with aclosing(hearing.stream_transcription(audio, sampling_params=PARAMS)) as said:
            await anext(said)
            assert asyncio.all_tasks() > before
        assert asyncio.all_tasks() == before
        assert hearing.live == 0

    loop.run(leave())
