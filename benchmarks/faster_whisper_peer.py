"""faster-whisper, greedy, without its voice-activity filter and without falling back to higher temperatures."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from faster_whisper import BatchedInferencePipeline, WhisperModel

from benchmarks.clips import RATE, Call, seconds
from benchmarks.worker import cores

OPTIONS = {"beam_size": 1, "temperature": 0.0, "without_timestamps": True, "vad_filter": False}


class FasterWhisper:
    """folder: a converted model. compute_type: as CTranslate2 has it. language: what is spoken.

    workers: `num_workers`, which share the cores. joined: how many clips of a call are made one file with a segment
    for each, as faster-whisper batches inside one file alone; such files go side by side, a thread for each.
    """

    def __init__(self, folder: Path, compute_type: str, language: str) -> None:
        self._folder = str(folder)
        self._compute_type = compute_type
        self._language = language
        self._loaded: tuple[int, Any] = 0, None

    def axes(self, work: list[Call]) -> dict[str, tuple[Any, ...]]:
        most = len(work[0])
        return {"workers": (cores(), 1), "joined": tuple(size for size in (8, 1, 2, 4, 16) if size <= most)}

    def run(self, work: list[Call], workers: int, joined: int) -> float:
        pipeline = self._pipeline(workers)
        with ThreadPoolExecutor(workers) as threads:
            for call in work:
                files = [call[start : start + joined] for start in range(0, len(call), joined)]
                list(threads.map(lambda clips: self._transcribe(pipeline, clips), files))
        return seconds(work)

    def _pipeline(self, workers: int) -> Any:
        if self._loaded[0] != workers:
            threads = max(1, cores() // workers)
            options = {"compute_type": self._compute_type, "num_workers": workers, "cpu_threads": threads}
            self._loaded = workers, BatchedInferencePipeline(WhisperModel(self._folder, device="cpu", **options))
        return self._loaded[1]

    def _transcribe(self, pipeline: Any, clips: Call) -> None:
        stops = np.cumsum([len(clip) for clip in clips])
        # A microsecond short: the peer asserts that spans do not add up to more than the audio, in floating point.
        spans = [
            {"start": (stop - len(clip)) / RATE, "end": stop / RATE - 1e-6}
            for clip, stop in zip(clips, stops, strict=True)
        ]
        segments, _ = pipeline.transcribe(
            np.concatenate(clips), clip_timestamps=spans, batch_size=len(clips), language=self._language, **OPTIONS
        )
        list(segments)  # the work is done as they are taken
