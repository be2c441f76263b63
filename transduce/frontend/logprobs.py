"""Tables of log-probabilities, by token: the likeliest ones of a position, and the one that stands there.

Owns what a token is called. It is what the token adds to the text of those before it: with the space before a word,
which most tokenizers drop from a token by itself, and with a character where its last byte is. So the names of a
text's tokens, joined, are the text.
"""

from collections.abc import Sequence

from transduce.core.output import TokenLogprobs
from transduce.frontend.detokenizer import TextStream
from transduce.frontend.outputs import Logprob
from transduce.models.base import Decode


class Tables:
    """Those of positions that follow each other. decode: None without a tokenizer: tokens have no text then.

    before: tokens in front of the first position.
    """

    def __init__(self, decode: Decode | None, before: Sequence[int] = ()) -> None:
        self.made: list[dict[int, Logprob]] = []
        self._text = None if decode is None else TextStream(decode)
        for token in before:
            self._pass(token)

    def extend(self, positions: Sequence[TokenLogprobs], *, last: bool) -> None:
        """Go on with these. last: the text ends with them, be it within a character."""
        for left, position in enumerate(positions, start=1 - len(positions)):
            self.made.append(self._table(position, last and left == 0))
            self._pass(position.token)

    def _table(self, position: TokenLogprobs, last: bool) -> dict[int, Logprob]:
        """The likeliest tokens, best first, then the one that stands there where it is not among them."""
        ranks: dict[int, tuple[float, int | None]] = {
            token: (logprob, rank) for rank, (token, logprob) in enumerate(position.top, start=1)
        }
        ranks.setdefault(position.token, (position.logprob, None))
        return {token: Logprob(value, rank, self._name(token, last)) for token, (value, rank) in ranks.items()}

    def _name(self, token: int, last: bool) -> str | None:
        return None if self._text is None else self._text.peek(token, last=last)

    def _pass(self, token: int) -> None:
        if self._text is not None:
            self._text.push(token)
