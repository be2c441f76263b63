"""What config.json of a checkpoint says of its quantized weights: the entry and its version. Knows no scheme."""

from collections.abc import Sequence
from typing import Any

KEY = "quantization_config"

VERSION = 1
"""Of the way in which tensors are stored."""


def described(method: str | None, keep: Sequence[str]) -> dict[str, Any]:
    """The entry under KEY of weights stored as the scheme `method`, but for the layers `keep`."""
    return {"quant_method": method, "version": VERSION, "keep": list(keep)}
