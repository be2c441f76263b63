"""Decoding a window until it can be believed: again at a higher temperature while it repeats itself or is unlikely.

Owns the thresholds and what is measured of an attempt. Knows no audio, no timestamps and no window but the one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from transduce.core.checks import Range, listed, number
from transduce.core.params import NUMBERS
from transduce.errors import RequestError
from transduce.frontend.dialogue import Dialogue, Work
from transduce.frontend.frontend import Params
from transduce.frontend.outputs import RequestOutput
from transduce.speech.search import Search
from transduce.speech.segments import compression_ratio

LADDER = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

GREEDY = Search()
"""As the parameters have it, greedily if they say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """When a window is decoded again, at the next of `temperatures`; the last attempt counts. None: never for that.

    compression_ratio_threshold: its text's is greater. logprob_threshold: its tokens' mean log-probability is less,
    unless it is silent: no speech is likelier than no_speech_threshold as well. Raises RequestError.
    """

    temperatures: tuple[float, ...] = LADDER
    compression_ratio_threshold: float | None = 2.4
    logprob_threshold: float | None = -1.0
    no_speech_threshold: float | None = 0.6

    def __post_init__(self) -> None:
        listed("temperatures", self.temperatures, "numbers")
        if not self.temperatures:
            raise RequestError("fallback without temperatures: give at least one, such as 0.0")
        for temperature in self.temperatures:
            number("temperatures", temperature, NUMBERS["temperature"])
        for name in ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"):
            if (threshold := getattr(self, name)) is not None:
                number(name, threshold, Range(-math.inf, math.inf))

    def again(self, attempt: "Attempt") -> bool:
        """Whether an attempt is not to be believed."""
        repeats = _above(attempt.compression_ratio, self.compression_ratio_threshold)
        return not attempt.failed and not self._inaudible(attempt) and (repeats or self._unlikely(attempt))

    def silent(self, attempt: "Attempt") -> bool:
        """Whether an attempt's text is not to be believed, for nobody speaks."""
        likely = self.logprob_threshold is not None and attempt.avg_logprob > self.logprob_threshold
        return not likely and _above(attempt.no_speech_prob, self.no_speech_threshold)

    def _inaudible(self, attempt: "Attempt") -> bool:
        return self._unlikely(attempt) and _above(attempt.no_speech_prob, self.no_speech_threshold)

    def _unlikely(self, attempt: "Attempt") -> bool:
        return self.logprob_threshold is not None and attempt.avg_logprob < self.logprob_threshold


ONCE = Fallback(temperatures=(0.0,), compression_ratio_threshold=None, logprob_threshold=None, no_speech_threshold=None)
"""One attempt, which is believed."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One window, decoded once. tokens: with those that it was begun with, without the one that ended it. text: what
    was added to these, without timestamps, which is what the measures, a Segment's, are of.
    """

    output: RequestOutput
    tokens: tuple[int, ...]
    text: str
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float

    @property
    def failed(self) -> bool:
        """Whether the engine gave no answer."""
        return self.output.error is not None


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """How outputs are read. text: of token ids. ends: the tokens that end an answer."""

    text: Callable[[Sequence[int]], str]
    ends: frozenset[int]

    def attempt(self, output: RequestOutput, temperature: float) -> Attempt:
        """What an output says and how it can be believed."""
        answer = output.outputs[0]
        tokens = tuple(answer.token_ids)
        if tokens and tokens[-1] in self.ends:
            tokens = tokens[:-1]
        text = self.text(tokens)
        total = math.nan if answer.cumulative_logprob is None else answer.cumulative_logprob
        silence = math.nan if output.no_speech_prob is None else output.no_speech_prob
        ratio = compression_ratio(text.strip())
        return Attempt(output, tokens, text, temperature, total / (len(tokens) + 1), ratio, silence)


def decoded(
    ask: Callable[[Params], Work],
    params: Params,
    fallback: Fallback,
    reader: Reader,
    search: Search = GREEDY,
    begun: tuple[int, ...] = (),
) -> Dialogue[Attempt]:
    """The first attempt at a window that can be believed, or the last one. ask: the window's Work.

    A temperature in `params` is the only one. All attempts share what the window was encoded to. begun: tokens, of the
    decoder's prompt, that the answer begins with.
    """
    temperatures = fallback.temperatures if params.temperature is None else (params.temperature,)
    for temperature in temperatures:
        (output,) = yield [replace(ask(search.at(temperature, params)), leases=len(temperatures) > 1)]
        attempt = reader.attempt(output, temperature)
        if not fallback.again(attempt):
            break
    return replace(attempt, tokens=(*begun, *attempt.tokens))


def _above(value: float, threshold: float | None) -> bool:
    return threshold is not None and value > threshold
