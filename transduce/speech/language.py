"""Which language is spoken: as asked for, as the checkpoint says, or as heard in a first window.

Owns the question to the model and what its answer means. Knows no engine and no transcription.
"""

import math
from collections.abc import Callable, Mapping

from transduce.core.params import SamplingParams
from transduce.frontend.dialogue import Dialogue, Work
from transduce.frontend.frontend import Frontend
from transduce.frontend.outputs import RequestOutput
from transduce.media.audio import Decoded


class Languages:
    """known: the language where it is known without hearing anything. heard: the prompt that has a window heard."""

    def __init__(self, frontend: Frontend, given: str | None, heard: Callable[[Decoded], Mapping[str, object]]) -> None:
        self._start = frontend.defaults.decoder_start_token_id
        self._codes = {token: code for code, token in frontend.defaults.languages.items()}
        self._only = frontend.processor.language
        self._heard = heard
        self.known = given or frontend.defaults.language or self._only

    def asked(self, audio: Decoded) -> Dialogue[RequestOutput | None]:
        """What the model says of a window; None where the language is known, or the model knows none.

        It is asked for the likeliest first token among the languages'. The window is encoded once: transcribing it
        finds the encoder's output in the cache. top_k=1 takes the likeliest, as greedy decoding would, of a checkpoint
        that asks for beams too.
        """
        if self.known is not None or not self._codes:
            return None
        among = sorted(self._codes)
        params = SamplingParams(temperature=1.0, top_k=1, seed=0, max_tokens=1, allowed_token_ids=among, logprobs=0)
        (output,) = yield [Work({**self._heard(audio), "prompt_token_ids": [self._start]}, params, leases=True)]
        return output

    def told(self, output: RequestOutput | None) -> tuple[str | None, float | None]:
        """The language, and the probability of a detected one; None where that failed."""
        if output is None:
            return self.known, None
        answer = output.outputs[0]
        if not answer.token_ids or answer.cumulative_logprob is None:
            return None, None
        return self._codes[answer.token_ids[0]], math.exp(answer.cumulative_logprob)

    def spoken(self, output: RequestOutput, given: str | None) -> str | None:
        """The language's code, as the decoder's prompt has it, or the model's only one; as given where nothing ran."""
        if not output.prompt_token_ids:
            return given
        named = (self._codes[token] for token in output.prompt_token_ids if token in self._codes)
        return next(named, self._only or given)
