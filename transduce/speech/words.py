"""When each word is spoken: from a text's tokens and what the decoder looks at while it reads them.

Owns what a word is, which punctuation belongs to it, and which times are not to be believed, all as in openai/whisper.
Knows no engine: it asks for an alignment as a dialogue does.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from string import punctuation

import numpy as np

from transduce.core.params import SamplingParams
from transduce.frontend.dialogue import Dialogue, Work
from transduce.frontend.outputs import Alignment
from transduce.models.base import Clock, Spoken
from transduce.speech.alignment import onsets
from transduce.speech.segments import Segment, Word

UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Languages that put no spaces between words: there a word is what one token or a few spell."""

BEFORE = "\"'“¿([{-"
AFTER = "\"'.。,，!！?？:：”)]}、"
"""Punctuation that belongs to the word after it, and to the one before it."""

STOPS = ".。!！?？"

ALIGN = SamplingParams(max_tokens=0, prompt_logprobs=0)
"""Nothing comes after a text that is given."""

HALF = "\ufffd"
"""What tokens spell that end within a character."""

LONGEST = 0.7
"""Seconds: the usual length of a word is never taken to be more."""

FAR = 0.5
"""Seconds by which a word may go beyond its segment before the segment is believed rather than the word."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How tokens become words. text: of token ids. end: the end token: no text has it or a greater one."""

    text: Callable[[Sequence[int]], str]
    end: int
    language: str | None

    @property
    def spaced(self) -> bool:
        """Whether words begin with a space."""
        return self.language not in UNSPACED

    def tokens(self, segment: Segment) -> tuple[int, ...]:
        """Those of its text."""
        return tuple(token for token in segment.tokens if token < self.end)


@dataclass(frozen=True, slots=True)
class Timing:
    """A word within a window. tokens: how many. start, end: seconds from the window's start."""

    text: str
    tokens: int
    start: float
    end: float
    probability: float

    @property
    def length(self) -> float:
        """In seconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Timed:
    """A window's segments with their words, or why these have none."""

    segments: tuple[Segment, ...]
    error: str | None = None


def timed(
    segments: Sequence[Segment],
    samples: int,
    clock: Clock,
    ask: Callable[[Spoken], Work],
    spelling: Spelling,
    spoken_until: float = 0.0,
) -> Dialogue[Timed]:
    """The segments of one window of `samples` samples with their words, begun and ended as these are.

    ask: the window's Work with the processor's option `spoken`, without earlier text, and with the parameters ALIGN.
    spoken_until: where the last word before the window ends, in seconds.
    """
    texts = [spelling.tokens(segment) for segment in segments]
    tokens = tuple(token for text in texts for token in text)
    if not tokens:
        return Timed(tuple(replace(segment, words=()) for segment in segments))
    (output,) = yield [ask(Spoken(tokens, max(1, samples // clock.step)))]
    if output.alignment is None:
        return Timed(tuple(segments), output.error)
    words = timings(tokens, output.alignment, spelling, clock.step / clock.rate)
    usual = _usual(words)
    words = merged([*_cut_at_stops(words, 2 * usual)])
    window = segments[0].seek * clock.frame / clock.rate
    ends = list(accumulate(map(len, texts)))
    return Timed(tuple(_placed(segments, ends, words, window, usual, spoken_until)))


def timings(tokens: Sequence[int], alignment: Alignment, spelling: Spelling, row: float) -> list[Timing]:
    """The words that tokens spell; row: seconds of an encoder row.

    Tokens that the decoder had no room for are heard at the end, and their probability is 0.
    """
    known = len(alignment.logprobs)
    begins = onsets(alignment.weights, alignment.start - 1, alignment.start + known) * row
    times = np.pad(begins, (0, len(tokens) - known), mode="edge").tolist()
    chances = [*map(math.exp, alignment.logprobs), *[0.0] * (len(tokens) - known)]
    found, first = [], 0
    for text, count in spelled(tokens, spelling):
        last = first + count
        found.append(Timing(text, count, times[first], times[last], sum(chances[first:last]) / count))
        first = last
    return found


def spelled(tokens: Sequence[int], spelling: Spelling) -> list[tuple[str, int]]:
    """Words and how many tokens each has: what begins with a space or is punctuation, with all that follows it."""
    words: list[tuple[str, int]] = []
    for text, count in _characters(tokens, spelling.text):
        if words and spelling.spaced and not text.startswith(" ") and text.strip() not in punctuation:
            before, tokens_before = words[-1]
            words[-1] = before + text, tokens_before + count
        else:
            words.append((text, count))
    return words


def _characters(tokens: Sequence[int], text: Callable[[Sequence[int]], str]) -> Iterator[tuple[str, int]]:
    """The fewest tokens each that spell whole characters; halves are kept where the whole text has them too."""
    whole, offset, first = text(tokens), 0, 0
    for end in range(1, len(tokens) + 1):
        part = text(tokens[first:end])
        half = offset + part.find(HALF)
        if end == len(tokens) or HALF not in part or whole[half : half + 1] == HALF:
            yield part, end - first
            offset, first = offset + len(part), end


def merged(words: Sequence[Timing], before: str = BEFORE, after: str = AFTER) -> list[Timing]:
    """The words with the punctuation that belongs to them, which has no part in their times and probabilities."""
    opened: list[Timing] = []
    for word in reversed(words):
        if opened and word.text.startswith(" ") and word.text.strip() in before:
            later = opened[-1]
            opened[-1] = replace(later, text=word.text + later.text, tokens=word.tokens + later.tokens)
        else:
            opened.append(word)
    closed: list[Timing] = []
    for word in reversed(opened):
        if closed and not closed[-1].text.endswith(" ") and word.text in after:
            earlier = closed[-1]
            closed[-1] = replace(earlier, text=earlier.text + word.text, tokens=earlier.tokens + word.tokens)
        else:
            closed.append(word)
    return closed


def _usual(words: Sequence[Timing]) -> float:
    """The median length of a word, in seconds."""
    lengths = [word.length for word in words if word.length]
    return min(LONGEST, float(np.median(lengths))) if lengths else 0.0


def _cut_at_stops(words: Sequence[Timing], longest: float) -> Iterator[Timing]:
    """The pause between two sentences is part of neither's words."""
    yield from words[:1]
    for before, word in pairwise(words):
        if word.length > longest and word.text in STOPS:
            yield replace(word, end=word.start + longest)
        elif word.length > longest and before.text in STOPS:
            yield replace(word, start=word.end - longest)
        else:
            yield word


def _placed(
    segments: Sequence[Segment],
    ends: Sequence[int],
    words: Sequence[Timing],
    window: float,
    usual: float,
    spoken_until: float,
) -> Iterator[Segment]:
    """Each segment with the words that begin before its last token; ends: the tokens up to there.

    window: where it begins, in seconds.
    """
    rest, tokens = deque(words), 0
    for segment, end in zip(segments, ends, strict=True):
        own: list[Word] = []
        while rest and tokens < end:
            word = rest.popleft()
            own.append(Word(word.text, _time(window + word.start), _time(window + word.end), word.probability))
            tokens += word.tokens
        if own:
            placed = _fitted(segment, _after_pause(own, usual, spoken_until), usual)
            spoken_until = placed.end
            yield placed
        else:
            yield replace(segment, words=())


def _after_pause(words: list[Word], usual: float, spoken_until: float) -> list[Word]:
    """A pause is part of neither the first word after it nor the second."""
    longest, (first, *others) = 2 * usual, words
    two = bool(others) and others[0].end - first.start > 2 * longest
    if first.end - spoken_until <= 4 * usual or not (first.end - first.start > longest or two):
        return words
    if others and others[0].end - others[0].start > longest:
        second = others[0]
        parted = _time(max(second.end / 2, second.end - longest))
        first, others[0] = replace(first, end=parted), replace(second, start=parted)
    return [replace(first, start=_time(max(0, first.end - longest))), *others]


def _fitted(segment: Segment, words: list[Word], usual: float) -> Segment:
    """The segment from its first word to its last, unless one goes far beyond it: that word is cut then."""
    start, end, first = segment.start, segment.end, words[0]
    if first.start < start - FAR and start < first.end:
        words[0] = replace(first, start=_time(max(0, min(first.end - usual, start))))
    else:
        start = first.start
    last = words[-1]
    if last.start < end and end + FAR < last.end:
        words[-1] = replace(last, end=_time(max(last.start + usual, end)))
    else:
        end = last.end
    return replace(segment, start=start, end=end, words=tuple(words))


def _time(seconds: float) -> float:
    return round(seconds, 2)
