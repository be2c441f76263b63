"""How a window is searched at each temperature: by beams at 0, and above by the best of several samples.

Owns what openai/whisper's beam_size, best_of and patience come to in the engine's parameters. Knows no thresholds.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

from transduce.core.checks import integer, number, require
from transduce.core.params import NUMBERS, BeamSearchParams, GenerationParams, SamplingParams
from transduce.errors import RequestError
from transduce.frontend.frontend import Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """beam_size: beams at temperature 0, whose search ends when as many have ended, times patience. best_of: samples at
    other temperatures, of which the one counts whose tokens have the greatest mean log-probability. None: as the
    parameters of a window have it. Raises RequestError.
    """

    beam_size: int | None = None
    best_of: int | None = None
    patience: float | None = None

    def __post_init__(self) -> None:
        for name in ("beam_size", "best_of"):
            if (value := getattr(self, name)) is not None:
                integer(name, value, 1)
        if self.patience is not None:
            number("patience", self.patience, NUMBERS["patience"])
            require((self.beam_size or 1) > 1, "patience", self.patience, "it is for beams; give a beam_size above 1")

    def check(self, most: int) -> None:
        """Raise RequestError for more than the hypotheses that the engine runs at once."""
        for name in ("beam_size", "best_of"):
            fix = f"at most max_num_seqs={most} hypotheses run at once; lower it, or raise max_num_seqs"
            require((getattr(self, name) or 1) <= most, name, getattr(self, name), fix)

    def at(self, temperature: float, params: Params) -> Params:
        """A window's parameters at a temperature. Raises RequestError where they say what this does, too.

        Without a seed of the user's it is always the same one, so that a transcription repeats; a temperature of the
        user's has the engine's.
        """
        self._agree(params)
        if not temperature and self.beam_size is not None:
            return self._beams(params, self.beam_size)
        if params.temperature is not None and (not temperature or self.best_of is None):
            return params
        if not temperature:
            return replace(params, temperature=0.0, best_of=None) if isinstance(params, SamplingParams) else params
        seed = params.seed or 0 if params.temperature is None else params.seed
        sampled = params if isinstance(params, SamplingParams) else SamplingParams(**_shared(params))
        return replace(sampled, temperature=temperature, seed=seed, best_of=self.best_of or sampled.best_of)

    def _beams(self, params: Params, width: int) -> BeamSearchParams:
        """Beams that end as openai/whisper's do."""
        penalty = params.length_penalty if isinstance(params, BeamSearchParams) else None
        shared: dict[str, Any] = {**_shared(params), "temperature": 0.0, "beam_width": width, "num_return_sequences": 1}
        if width == 1:
            return BeamSearchParams(**shared)
        return BeamSearchParams(**shared, length_penalty=penalty, early_stopping=True, patience=self.patience)

    def _agree(self, params: Params) -> None:
        for ours, theirs in (("beam_size", "beam_width"), ("best_of", "best_of")):
            value, other = getattr(self, ours), getattr(params, theirs, None)
            if value is not None and other is not None:
                raise RequestError(f"{ours}={value} beside {theirs}={other} in sampling_params; give one of them")


def _shared(params: Params) -> dict[str, Any]:
    return {field.name: getattr(params, field.name) for field in fields(GenerationParams)}
