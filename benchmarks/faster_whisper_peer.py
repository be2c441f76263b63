"""faster-whisper: clips, greedy, without its voice-activity filter and without falling back to higher temperatures; and
files, with both.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from faster_whisper import BatchedInferencePipeline, WhisperModel

from benchmarks.clips import PAUSE, RATE, Call, Clip, seconds
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


class Files:
    """Files of any length in which English is spoken, with the filter for speech. workers: see FasterWhisper.

    way: "sequential", or "batched-N", N windows in a batch. beams: 1 is greedy.
    """

    def __init__(self, folder: Path, compute_type: str, workers: int) -> None:
        threads = max(1, cores() // workers)
        options = {"compute_type": compute_type, "num_workers": workers, "cpu_threads": threads}
        self._model = WhisperModel(str(folder), device="cpu", **options)
        self._batched = BatchedInferencePipeline(self._model)
        self._workers = workers

    def texts(self, files: list[Clip], way: str, beams: int) -> list[str]:
        """What is said in files that come at once."""
        with ThreadPoolExecutor(self._workers) as threads:
            return list(threads.map(lambda samples: self._text(samples, way, beams), files))

    def waits(self, long: Clip, clips: list[Clip], way: str, beams: str) -> list[float]:
        """Seconds until each clip has its answer, one after another while a long file runs."""
        seconds = list[float]()
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(self._text, long, way, int(beams))
            for clip in clips:
                time.sleep(PAUSE)
                if running.done():
                    break
                start = time.perf_counter()
                self._text(clip, "clip", int(beams))
                seconds.append(time.perf_counter() - start)
        return seconds

    def _text(self, samples: Clip, way: str, beams: int) -> str:
        options: dict[str, Any] = {"language": "en", "beam_size": beams, "vad_filter": way != "clip"}
        if way.startswith("batched-"):
            options["batch_size"] = int(way.removeprefix("batched-"))
        model = self._batched if way.startswith("batched-") else self._model
        segments, _ = model.transcribe(samples, **options)
        return "".join(segment.text for segment in segments)
