"""Transduce, as `LLM` serves it: text models with random weights, and trained ones of speech.

Without speculation, which computes fewer steps where an answer repeats something: what is compared is the same work.
"""

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.clips import PAUSE, RATE, Call, Clip, seconds
from benchmarks.columns import Work, wanted
from benchmarks.floor import floors
from benchmarks.models import Config
from benchmarks.profiling import Share, shares
from transduce import LLM, AsyncLLM, BeamSearchParams, SamplingParams


class _Ours:
    """There is nothing to set for what is measured: the defaults are ours to choose well."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def axes(self, work: object) -> dict[str, tuple[Any, ...]]:
        return {}

    def cache_hits(self) -> int:
        """Inputs so far whose encoder output was found in the cache."""
        return self._llm.engine.scheduler.cache.hits


class Text(_Ours):
    """`LLM.generate`. options: engine arguments."""

    def __init__(self, config: Config, options: dict[str, Any]) -> None:
        self._config = config
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(config))
            super().__init__(LLM(folder, load_format="dummy", skip_tokenizer_init=True, speculate=False, **options))

    def run(self, work: list[Work]) -> float:
        params = [BeamSearchParams(beam_width=w.beams, max_tokens=w.length, ignore_eos=True) for w in work]
        outputs = self._llm.generate([{"prompt_token_ids": w.source} for w in work], params, use_tqdm=False)
        assert sum(len(output.outputs[0].token_ids) for output in outputs) == wanted(work)
        return wanted(work)

    def floors(self, work: list[Work], precision: str, width: int) -> tuple[float, float]:
        """Seconds that encoding and decoding take at least, measured with this process's threads."""
        return floors(work, self._config, precision, width)

    def profile(self, work: list[Work]) -> list[Share]:
        """Where the time of a step goes."""
        return shares(self._llm.engine, lambda: self.run(work))


class Speech(_Ours):
    """`LLM.transcribe`, greedy. options: engine arguments. language: what is spoken."""

    def __init__(self, checkpoint: Path, options: dict[str, Any], language: str) -> None:
        super().__init__(LLM(checkpoint, speculate=False, **options))
        self._language = language

    def run(self, work: list[Call]) -> float:
        greedy = SamplingParams(temperature=0.0)
        for call in work:
            clips = [(clip, RATE) for clip in call]
            self._llm.transcribe(clips, self._language, sampling_params=greedy, use_tqdm=False)
        return seconds(work)


class Files(_Ours):
    """`LLM.transcribe` of files of any length, in which English is spoken, with the filter for speech."""

    def __init__(self, checkpoint: Path, options: dict[str, Any]) -> None:
        super().__init__(LLM(checkpoint, speculate=False, **options))

    def texts(self, files: list[Clip]) -> list[str]:
        """What is said in files that come at once."""
        audio = [(samples, RATE) for samples in files]
        return [said.text for said in self._llm.transcribe(audio, "en", vad_filter=True, use_tqdm=False)]


class Live:
    """`AsyncLLM`, as a server has it."""

    def __init__(self, checkpoint: Path, options: dict[str, Any]) -> None:
        self._runner = asyncio.Runner()
        self._llm = AsyncLLM(checkpoint, speculate=False, **options)
        self._runner.run(self._llm.start())

    def waits(self, long: Clip, clips: list[Clip]) -> list[float]:
        """Seconds until each clip has its answer, one after another while a long file runs."""
        return self._runner.run(self._waits(long, clips))

    async def _waits(self, long: Clip, clips: list[Clip]) -> list[float]:
        running = asyncio.ensure_future(self._llm.transcribe((long, RATE), "en", vad_filter=True))
        seconds = list[float]()
        for clip in clips:
            await asyncio.sleep(PAUSE)
            if running.done():
                break
            start = time.perf_counter()
            await self._llm.transcribe((clip, RATE), "en")
            seconds.append(time.perf_counter() - start)
        await running
        return seconds
