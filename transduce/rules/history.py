"""The tokens so far as a persistent state: appending leaves the shorter history valid.

Histories with a common past share one log, which the newest of them extends in place; where two continue the
same past, the second copies it once. So a token costs the same however long the history, and a fork 8 bytes for
each of its tokens. Knows no rule.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class _Log:
    tokens: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(16, dtype=np.int64))
    used: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """The first `length` tokens of a log. Entries below the log's `used` are never written again."""

    log: _Log = field(default_factory=_Log)
    length: int = 0

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """The tokens [length], oldest first; a view, not to be written."""
        return self.log.tokens[: self.length]

    def append(self, token: int) -> "History":
        """This history and one more token."""
        log = self.log if self._may_extend else self._copied()
        log.tokens[self.length] = token
        log.used = self.length + 1
        return History(log, log.used)

    @property
    def _may_extend(self) -> bool:
        return self.length == self.log.used < len(self.log.tokens)

    def _copied(self) -> _Log:
        log = _Log(np.empty(max(16, 2 * self.length), dtype=np.int64), self.length)
        log.tokens[: self.length] = self.tokens
        return log
