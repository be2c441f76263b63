"""Token ids to text as they come: whole characters only, and stop strings found across token borders.

Owns what may be shown already and where a text ends. Knows no request; `decode` is the tokenizer's.

Text is decoded in a window of a few tokens, as decoders join tokens depending on their neighbours (a word's leading
space, the bytes of one character). The window moves on when all of its text is final.
"""

import re
from collections.abc import Iterable, Sequence

from transduce.models.base import Decode

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_UNSURE = re.compile(r"[ ']+(?:[vrn]|n')?$")
"""A text's end that clean_up_tokenization_spaces may rewrite once more follows."""


class TextStream:
    """One hypothesis' text. The pieces that `push` and `flush` return, joined, are the decoded whole."""

    def __init__(self, decode: Decode, *, cleaned: bool = False) -> None:
        self._decode = decode
        self._cleaned = cleaned
        self._tokens: list[int] = []
        self._final = 0
        self._shown = 0

    def push(self, token: int) -> str:
        """The text that one more token makes final, possibly none."""
        text = self._with(token)
        end = self._settled(text)
        piece = text[self._shown : end]
        self._tokens.append(token)
        self._shown = max(self._shown, end)
        if piece and end == len(text):
            self._move()
        return piece

    def peek(self, token: int, *, last: bool = False) -> str:
        """What `push` would return, and with `last` a `flush` after it."""
        text = self._with(token)
        return text[self._shown : len(text) if last else self._settled(text)]

    def flush(self) -> str:
        """The text that was held back, now that nothing follows."""
        piece = self._decode(self._tokens)[self._shown :]
        self._shown += len(piece)
        return piece

    def _with(self, token: int) -> str:
        """The window's text with one more token."""
        return self._decode([*self._tokens, token])

    def _settled(self, text: str) -> int:
        """How much of the window's text no further token can change."""
        settled = text.rstrip(REPLACEMENT)
        unsure = _UNSURE.search(settled) if self._cleaned else None
        return len(settled) if unsure is None else unsure.start()

    def _move(self) -> None:
        """Leave the tokens shown before this one: the last ones are context enough."""
        del self._tokens[: self._final]
        self._final = len(self._tokens)
        self._shown = len(self._decode(self._tokens))


class Detokenizer:
    """One hypothesis' tokens to its text, ended by the first stop string that appears.

    decode: the text of token ids. stops: strings that end the text, themselves left out unless `include`.
    least: stop strings that appear within the first `least` tokens do not count.
    cleaned: whether the tokenizer cleans up spaces.
    """

    def __init__(
        self, decode: Decode, stops: Sequence[str] = (), *, include: bool = False, least: int = 0, cleaned: bool = False
    ) -> None:
        self.text = ""
        self.stop: str | None = None
        self.kept = 0
        """Tokens until the text ended, the one that completed the stop string included."""
        self._stream = TextStream(decode, cleaned=cleaned)
        self._stops = tuple(stops)
        self._include = include
        self._least = least
        self._held = 0 if include else max(map(len, stops), default=1) - 1
        self._from = 0
        self._shown = 0

    @property
    def shown(self) -> str:
        """The pieces so far, joined: text that no later token takes back."""
        return self.text[: self._shown]

    def push(self, tokens: Iterable[int]) -> str:
        """Text that can be shown after more tokens; tokens after a stop string are ignored."""
        for token in tokens:
            if self.stop is not None:
                break
            self.kept += 1
            self._append(self._stream.push(token))
        return self._show(len(self.text) - (self._held if self.stop is None else 0))

    def flush(self) -> str:
        """The rest of the text, now that no token follows."""
        if self.stop is None:
            self._append(self._stream.flush())
        return self._show(len(self.text))

    def _append(self, piece: str) -> None:
        start, self.text = len(self.text), self.text + piece
        if self.kept <= self._least:
            self._from = len(self.text)
            return
        found = [(at, stop) for stop in self._stops if (at := self._find(stop, start)) >= 0]
        if found:
            at, self.stop = min(found)
            self.text = self.text[: at + (len(self.stop) if self._include else 0)]

    def _find(self, stop: str, start: int) -> int:
        """Where `stop` begins, if text from `start` on completed it."""
        return self.text.find(stop, max(self._from, start - len(stop) + 1))

    def _show(self, end: int) -> str:
        piece = self.text[self._shown : max(end, self._shown)]
        self._shown += len(piece)
        return piece
