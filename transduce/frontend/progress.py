"""Progress bars for long work in a terminal: requests done, and tokens, seconds of audio or pages per second.

Owns what is shown and when. Knows no engine.
"""

from time import perf_counter
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PATIENCE = 1.0
"""Seconds before work counts as long."""

INTERVAL = 0.1
"""Seconds between two drawings."""


class Bar:
    """Counts requests and tokens; draws on a terminal once the work takes long, and never elsewhere.

    Drawing is done by `update`, so nothing runs beside the engine.
    """

    def __init__(self, total: int, shown: bool, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("[dim]{task.fields[speed]}"),
            TimeElapsedColumn(),
            console=self._console,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("", total=total, speed="")
        self._shown = shown and self._console.is_terminal
        self._started = self._drawn = perf_counter()
        self._done = self._input = self._output = 0

    def update(self, done: int = 0, input_tokens: int = 0, output_tokens: int = 0) -> None:
        """Count more finished requests and tokens, and draw if it is time to."""
        self._done += done
        self._input += input_tokens
        self._output += output_tokens
        now = perf_counter()
        if self._shown and now - self._started >= PATIENCE and now - self._drawn >= INTERVAL:
            self._drawn = now
            self._draw(now - self._started)

    @property
    def _completed(self) -> float:
        return self._done

    def _speed(self, seconds: float) -> str:
        return f"in {self._input / seconds:,.0f} tokens/s, out {self._output / seconds:,.0f} tokens/s"

    def _draw(self, seconds: float) -> None:
        self._progress.start()
        self._progress.update(self._task, completed=self._completed, speed=self._speed(seconds))
        self._progress.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress.live.is_started:
            self._draw(perf_counter() - self._started)
            self._progress.stop()


class AudioBar(Bar):
    """Counts recordings by how much of each was heard, and the seconds of audio."""

    def __init__(self, total: int, shown: bool, console: Console | None = None) -> None:
        super().__init__(total, shown, console)
        self._heard: dict[int, tuple[float, float]] = {}

    def hear(self, recording: int, seconds: float, duration: float) -> None:
        """So many seconds of a recording's duration have been heard by now."""
        self._heard[recording] = seconds, duration
        self.update()

    @property
    def _completed(self) -> float:
        """Recordings that failed are done as well."""
        return max(self._done, sum(seconds / duration for seconds, duration in self._heard.values()))

    def _speed(self, seconds: float) -> str:
        audio = sum(heard for heard, _ in self._heard.values())
        return f"{audio:,.0f} s of audio, {audio / seconds:,.1f} × real time"


class PageBar(Bar):
    """Counts documents, and pages: how many a document has is known at its end alone."""

    def __init__(self, total: int, shown: bool, console: Console | None = None) -> None:
        super().__init__(total, shown, console)
        self._pages = 0

    def read(self) -> None:
        """One more page has its text, or has failed."""
        self._pages += 1
        self.update()

    def _speed(self, seconds: float) -> str:
        return f"{self._pages:,} pages, {self._pages / seconds:,.1f} pages/s"
