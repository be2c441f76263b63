"""What a machine allows at best: bytes over its bandwidth, operations over its rate, whichever takes longer.

`Shape` counts what a model must read and compute, `Limits` holds what the machine was measured to do. Every weight
is read once per step, and each token reads the keys and values before it; a request's beams share the source's.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.columns import Work
from benchmarks.models import Config

ROWS, IN, OUT = 1024, 1024, 4096
"""The matrix product whose rate is taken."""


@dataclass(frozen=True, slots=True)
class Limits:
    """bandwidth: bytes read per second. rate: operations per second, a multiplication and an addition being two."""

    bandwidth: float
    rate: float

    def seconds(self, read: float, operations: float) -> float:
        """At least so long."""
        return max(read / self.bandwidth, operations / self.rate)


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of a weight and of a key's or value's number."""

    name: str
    weight: int
    kv: int


PRECISIONS = {
    each.name: each for each in (Precision("int8", 1, 2), Precision("bfloat16", 2, 2), Precision("float32", 4, 4))
}


@dataclass(frozen=True, slots=True)
class Shape:
    """encoder, cross, decoder: weights that one row passes, cross being those that make keys and values for the
    decoder. encoder_kv, decoder_kv: numbers that all layers' keys and values of one position have."""

    encoder: int
    cross: int
    decoder: int
    encoder_kv: int
    decoder_kv: int

    @classmethod
    def of(cls, config: Config) -> "Shape":
        """A model's, from its `config.json`."""
        t5 = config["model_type"] == "t5"
        width = config["d_model"]
        heads = config["num_heads"] * config["d_kv"] if t5 else width
        hidden = (config["d_ff"], config["d_ff"]) if t5 else (config["encoder_ffn_dim"], config["decoder_ffn_dim"])
        encoders, decoders = (
            (config["num_layers"], config["num_decoder_layers"])
            if t5
            else (config["encoder_layers"], config["decoder_layers"])
        )
        matrices = 3 if t5 else 2  # T5's feed-forward layers are gated
        return cls(
            encoder=encoders * width * (4 * heads + matrices * hidden[0]),
            cross=decoders * width * 2 * heads,
            decoder=decoders * width * (6 * heads + matrices * hidden[1]) + width * config["vocab_size"],
            encoder_kv=encoders * 2 * heads,
            decoder_kv=decoders * 2 * heads,
        )

    def encode(self, work: Sequence[Work], precision: Precision, limits: Limits) -> float:
        """Seconds to encode the sources and make their cross-attention keys and values."""
        weights, rows = self.encoder + self.cross, sum(len(w.source) for w in work)
        attention = sum(len(w.source) ** 2 for w in work) * 2 * self.encoder_kv
        written = rows * self.decoder_kv * precision.kv
        return limits.seconds(weights * precision.weight + written, 2 * rows * weights + attention)

    def decode(self, work: Sequence[Work], precision: Precision, limits: Limits, width: int) -> float:
        """Seconds to generate all tokens, at best `width` sequences at a time."""
        tokens = sum(w.beams * w.length for w in work)
        steps = max(*(w.length for w in work), -(-tokens // width))
        own = sum(w.beams * w.length * (w.length + 1) / 2 for w in work)
        shared = sum(w.length * len(w.source) for w in work)
        attended = own + sum(w.beams * w.length * len(w.source) for w in work)
        read = steps * self.decoder * precision.weight + (own + shared) * self.decoder_kv * precision.kv
        return limits.seconds(read, 2 * tokens * self.decoder + 2 * attended * self.decoder_kv)


def floors(work: Sequence[Work], config: Config, precision: str, width: int) -> tuple[float, float]:
    """Seconds that encoding and decoding take at least, on this machine as it is now; `Shape` has the arguments."""
    shape, bytes_of = Shape.of(config), PRECISIONS[precision]
    limits = measure(shape.decoder * bytes_of.weight, precision)
    return shape.encode(work, bytes_of, limits), shape.decode(work, bytes_of, limits, width)


def measure(read: int, precision: str) -> Limits:
    """This machine's limits now, with all of torch's threads. read: bytes of a buffer as large as what a step reads."""
    buffer = torch.ones(read // 4)
    return Limits(4 * buffer.numel() / _best(buffer.sum), 2 * ROWS * IN * OUT / _best(_product(precision)))


def _best(call: Callable[[], Any], repeats: int = 10) -> float:
    """Seconds of the fastest call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _product(precision: str) -> Callable[[], torch.Tensor]:
    if precision == "int8":
        return _int8_product()
    x, weight = (torch.randn(rows, IN, dtype=getattr(torch, precision)) for rows in (ROWS, OUT))
    return lambda: F.linear(x, weight)


def _int8_product() -> Callable[[], torch.Tensor]:
    """oneDNN's, unsigned activations by signed weights: the fastest that torch has."""
    x = torch.randint(0, 255, (ROWS, IN), dtype=torch.uint8)
    weight = torch.ops.onednn.qlinear_prepack(torch.randint(-127, 127, (OUT, IN), dtype=torch.int8), [ROWS, IN])
    scales, zeros = torch.ones(OUT), torch.zeros(OUT, dtype=torch.int64)
    form: tuple[Any, ...] = (None, 1.0, 0, torch.bfloat16, "none", [], "")
    return lambda: torch.ops.onednn.qlinear_pointwise(x, 1.0, 128, weight, scales, zeros, *form)
