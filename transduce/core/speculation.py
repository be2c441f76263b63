"""Drafts: tokens that may follow, guessed from a request's own source and its output so far.

Owns the guesses, how often they have been right, and how far it pays to go on. Knows no page and no model: a step
computes the drafts' rows beside the one it needs, and a guess that was wrong costs those rows and nothing else.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, takewhile
from operator import mul

from transduce.core.request import Request

STEP_ROWS = 32
"""A decoder's step takes as long as so many of its rows, and what they take beside that."""

NEAR = 8
"""How far from the old place in the text the new one may be where one token alone tells; two tell it anywhere."""

FIRST_RATES = (0.1, 0.4, 0.6, 0.7, 0.8)
"""How often a guess is right, before it is known, after so many right ones in a row."""

WEIGHT = 1 / 32
"""Of the latest guess in a rate."""

LEAST = 0.05
"""Guesses that are right more seldom are not worth the trouble, not even where their rows are free."""

MOST = 32
"""Tokens of one draft."""


class Drafter:
    """One hypothesis' place in its own text: the source, then the decoder's tokens so far.

    The next token is guessed to be the text's at that place; after the start token that is the source's first. Where
    the guess was wrong, the place is where the last tokens stood before, as near as can be to the old one; and where
    they did not, one further: a token has been replaced. useful: whether it may help to draft a token. run: how many
    guesses in a row were right.
    """

    def __init__(self, source: Iterable[int], prompt: Sequence[int], useful: Callable[[int], bool]) -> None:
        self.run = 0
        self._useful = useful
        self._text: list[int] = []
        self._after: defaultdict[int, list[int]] = defaultdict(list)
        self._place = 0
        start, *prefix = prompt
        for token in (*source, start):
            self._add(token)
        for token in prefix:
            self.see(token)

    def ahead(self, most: int) -> list[int]:
        """The next tokens, as far as the text goes and they are of use."""
        return list(takewhile(self._useful, self._text[self._place : self._place + most]))

    def see(self, token: int) -> bool | None:
        """Go on by one token; whether it was the guess, None where there was none."""
        right = self._text[self._place] == token if self._place < len(self._text) else None
        self.run = self.run + 1 if right else 0
        self._place = self._place + 1 if right else self._found(token)
        self._add(token)
        return right

    def _found(self, token: int) -> int:
        text, old, places = self._text, self._place, self._after.get(token, ())
        again = [place for place in places if place > 1 and text[place - 2] == text[-1]]
        close = again or [place for place in places if abs(place - old) <= NEAR]
        return min(close, key=lambda place: abs(place - old), default=old + 1)

    def _add(self, token: int) -> None:
        self._text.append(token)
        self._after[token].append(len(self._text))


class Speculation:
    """How far each drafter goes in a step: together as far as brings the most tokens, by expectation, in its time.

    vocabulary: ids from there on are never chosen. computed: how many rows a step of so many computes.
    Rates of right guesses are kept over all requests, by how many in a row were right before. Every guess counts,
    computed or not: so drafts begin where they pay and end where they do not.
    """

    def __init__(self, vocabulary: int, computed: Callable[[int], int]) -> None:
        self._vocabulary = vocabulary
        self._computed = computed
        self._rates = list(FIRST_RATES)

    def drafter(self, request: Request) -> Drafter | None:
        """A new one for a request of one answer that is not searched for; None for others."""
        if request.width > 1 or request.beams is not None or request.only_scored:
            return None
        source = [token for given in request.inputs for item in given.items for token in item.ids.tolist()]
        ends = request.stopping.ends
        return Drafter(source, request.prompt, lambda token: token < self._vocabulary and token not in ends)

    def draft(self, drafters: Sequence[tuple[Drafter, int]], tokens: int, rows: int, most: int) -> list[list[int]]:
        """What to compute beside each drafter's row in a step that computes `rows` and gives so many tokens anyway.

        Each drafter comes with the most tokens that it may give; all of them may give `most`.
        """
        chances = {run: self._chances(run) for run in {drafter.run for drafter, _ in drafters}}
        texts = [drafter.ahead(min(wanted, len(chances[drafter.run]))) for drafter, wanted in drafters]
        offered = sorted(
            (
                (chance, at)
                for at, ((drafter, _), text) in enumerate(zip(drafters, texts, strict=True))
                for chance in chances[drafter.run][: len(text)]
            ),
            reverse=True,
        )[:most]
        taken = Counter(at for _, at in offered[: self._worth([chance for chance, _ in offered], tokens, rows)])
        return [text[: taken[at]] for at, text in enumerate(texts)]

    def learn(self, drafter: Drafter, token: int) -> None:
        """Show a drafter the token that followed."""
        at = min(drafter.run, len(self._rates) - 1)
        right = drafter.see(token)
        if right is not None:
            self._rates[at] += WEIGHT * (right - self._rates[at])

    def _chances(self, run: int) -> list[float]:
        """After a run of right guesses: that the next is right, that the one after it is too, and so on."""
        rates = (self._rates[min(at, len(self._rates) - 1)] for at in range(run, run + MOST))
        return list(takewhile(lambda chance: chance >= LEAST, accumulate(rates, mul)))

    def _worth(self, chances: Sequence[float], tokens: float, rows: int) -> int:
        """How many of the guesses, likeliest first, bring the most tokens in the step's time."""
        best, worth = tokens / self._time(rows), 0
        for count, chance in enumerate(chances, 1):
            tokens += chance
            if (pace := tokens / self._time(rows + count)) > best:
                best, worth = pace, count
        return worth

    def _time(self, rows: int) -> int:
        return STEP_ROWS + self._computed(rows)
