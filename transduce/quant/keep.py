"""Which layers a scheme does not hold for: they keep their weights in the model's dtype.

Owns the patterns, and the layer of which only some parts are kept. Knows no scheme: whoever builds asks for each layer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from transduce.errors import ConfigError
from transduce.quant.base import Linear


class Keep:
    """Patterns over the names of layers, such as "lm_head" or "decoder.layers.0.*". It remembers who was asked for.

    strict: whether each pattern has to cover a layer.
    """

    def __init__(self, patterns: Sequence[str] = (), strict: bool = True) -> None:
        self._patterns = tuple(patterns)
        self._strict = strict
        self._asked: dict[str, bool] = {}

    @property
    def quantized(self) -> frozenset[str]:
        """The layers asked for that no pattern covers."""
        return frozenset(name for name, kept in self._asked.items() if not kept)

    @property
    def kept(self) -> frozenset[str]:
        """The layers asked for that a pattern covers."""
        return frozenset(self._asked) - self.quantized

    def covers(self, layer: str) -> bool:
        """Whether the layer of this name stays in the model's dtype."""
        return self._asked.setdefault(layer, any(fnmatchcase(layer, pattern) for pattern in self._patterns))

    def finish(self) -> None:
        """To be called when the model is built: ConfigError names a pattern that covers no layer."""
        for pattern in self._patterns if self._strict else ():
            if not any(fnmatchcase(layer, pattern) for layer in self._asked):
                raise ConfigError(
                    f"no layer matches {pattern!r}, which is to stay unquantized: the model has {self._kinds()}"
                )

    def _kinds(self) -> str:
        """The layers' names, those of a stack together; each works as a pattern."""
        return ", ".join(sorted({re.sub(r"\.\d+\.", ".*.", layer) for layer in self._asked}))


@dataclass(frozen=True, slots=True, eq=False)
class SideBySide(Linear):
    """Layers of one input: their outputs one beside the other."""

    layers: tuple[Linear, ...]

    def __call__(self, x: Tensor, times: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        out = torch.cat([layer(x) for layer in self.layers], 1)
        out = out if times is None else out * times
        return out if plus is None else out + plus
