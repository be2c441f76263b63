"""bitsandbytes' weights of four bits: read as transformers stores them, or made while a model is loaded.

Codes stay in memory: they become floats of the model's dtype while rows are multiplied by them. Owns the layout of the
stored tensors. Knows no layer and no model.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from transduce.errors import CheckpointError
from transduce.quant import codes
from transduce.quant.base import Epilogue, Linear, ParamSpec, RowsHint, Scheme, Scope
from transduce.quant.native import NativeLinear, available
from transduce.quant.none import TorchLinear, Unquantized

METHOD = "bitsandbytes"
"""What config.json calls all of bitsandbytes' ways."""

HEADS = ("lm_head", "shared", "*embed_tokens")
"""Layers that transformers leaves as they are where nobody says otherwise: heads, and tables that may serve as one."""

ABSMAX = "weight.absmax"


class BitsAndBytes(Scheme):
    """What its ways have in common. A stored layer is known by the tensor `mark`: checkpoints leave out what they like.

    stored: whether a checkpoint is said to hold such layers; else they are made.
    """

    tables = False
    keep = HEADS
    mark: ClassVar[str]

    def __init__(self, stored: bool = False) -> None:
        self._stored = stored
        self._found = False

    def holds(self, layer: Scope) -> bool:
        held = layer.has(self.mark)
        self._found |= held
        return held or not self._stored

    def finish(self) -> None:
        if self._stored and not self._found:
            raise CheckpointError(
                f"config.json says that weights are stored as {self.name}, and no layer is: download the checkpoint "
                "again, or remove its quantization_config"
            )


class FourBit(BitsAndBytes):
    """`codes` [out, in / 2], uint8, two inputs in each, and `absmax` [out, in / run], float32, of each run of inputs.

    A layer with an odd number of inputs, whose runs would be single values, is held in floats.
    """

    mark = ABSMAX
    kind: ClassVar[str]
    levels: ClassVar[Sequence[float]]

    def __init__(self, stored: bool = False) -> None:
        super().__init__(stored)
        self._floats = Unquantized()

    def of(self, entry: Mapping[str, Any]) -> Scheme | None:
        found = is_ours(entry) and bool(entry.get("load_in_4bit")) and entry.get("bnb_4bit_quant_type") == self.kind
        return type(self)(stored=True) if found else None

    def params(self, out_features: int, in_features: int) -> dict[str, ParamSpec]:
        if in_features % 2:
            return self._floats.params(out_features, in_features)
        runs = in_features // codes.run_of(in_features)
        return {
            "codes": ParamSpec((out_features, in_features // 2), out_dim=0, in_dim=1, dtype=torch.uint8),
            "absmax": ParamSpec((out_features, runs), out_dim=0, in_dim=1, dtype=torch.float32),
        }

    def load(self, layer: Scope, out_features: int, in_features: int) -> dict[str, Tensor]:
        if layer.has(ABSMAX):
            return self._tensors(*self._read(layer, (out_features, in_features)), out_features, in_features)
        if (generator := layer.generator("weight")) is not None and in_features % 2 == 0:
            return self._random(generator, self.params(out_features, in_features))
        return self.quantize(layer.stored("weight", (out_features, in_features)))

    def quantize(self, weight: Tensor) -> dict[str, Tensor]:
        return self._tensors(*codes.quantize(weight, self.levels), codes.BLOCK, *weight.shape)

    def prepare(self, tensors: Mapping[str, Tensor], epilogue: Epilogue, rows: RowsHint) -> Linear:
        if "weight" in tensors:
            return self._floats.prepare({"weight": tensors["weight"].to(epilogue.dtype)}, epilogue, rows)
        packed, absmax = tensors["codes"], tensors["absmax"]
        if available(packed.device):
            return NativeLinear.pack_codes(packed, absmax, torch.tensor(self.levels), epilogue)
        return Unpacked(packed, absmax, self.levels, epilogue, rows.tile)

    def call_rows(self, dtype: torch.dtype, device: torch.device, tile: int) -> int:
        return 1 if available(device) else tile

    def _tensors(self, packed: Tensor, absmax: Tensor, block: int, out: int, in_features: int) -> dict[str, Tensor]:
        runs = codes.spread(absmax, block, out, in_features)
        if in_features % 2 == 0:
            return {"codes": packed.view(out, -1), "absmax": runs}
        flat = codes.dequantize(packed[None], torch.ones(1, 1), self.levels)[0, : out * in_features]
        return {"weight": flat.view(out, in_features) * runs}

    def _random(self, generator: Generator, specs: Mapping[str, ParamSpec]) -> dict[str, Tensor]:
        """Codes of every kind, alike often, and magnitudes as of normal values of deviation 0.02."""
        shape = specs["codes"].shape
        words = torch.empty(-(-shape[0] * shape[1] // 8), dtype=torch.int64).random_(generator=generator)
        drawn = words.view(torch.uint8)[: shape[0] * shape[1]].view(shape)
        return {"codes": drawn, "absmax": torch.full(specs["absmax"].shape, 0.05)}

    def _read(self, layer: Scope, shape: tuple[int, int]) -> tuple[Tensor, Tensor, int]:
        """The stored codes [ceil(out * in / 2)], their blocks' absmax, and the size of a block."""
        state = State.read(layer, self.kind, shape)
        packed = layer.whole("weight").contiguous().view(torch.uint8).flatten()
        absmax = _unnested(layer, state) if state.nested_blocksize else layer.whole(ABSMAX)
        values = shape[0] * shape[1]
        if (len(packed), len(absmax)) != (-(-values // 2), -(-values // state.blocksize)):
            raise CheckpointError(
                f"{layer.name}.weight has {len(packed)} bytes in {len(absmax)} blocks of {state.blocksize} values, and "
                f"{shape[0]} x {shape[1]} values do not: save or download the checkpoint again"
            )
        if not torch.equal(layer.whole("weight.quant_map"), torch.tensor(self.levels)):
            raise CheckpointError(
                f"{layer.name}.weight.quant_map is not {self.kind}'s: give the model it was made from"
            )
        return packed, absmax.float(), state.blocksize


class NF4(FourBit):
    """Sixteen quantiles of the normal distribution."""

    name = METHOD
    kind = "nf4"
    levels = codes.NF4


class FP4(FourBit):
    """Floats of four bits."""

    name = f"{METHOD}-fp4"
    kind = "fp4"
    levels = codes.FP4


def is_ours(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of config.json speaks of bitsandbytes; early ones do not name it."""
    method = entry.get("quant_method")
    return method == METHOD or (method is None and ("load_in_4bit" in entry or "load_in_8bit" in entry))


@dataclass(frozen=True, slots=True)
class State:
    """What is stored beside a weight's tensors. nested_blocksize: 0 where its absmax are floats themselves."""

    blocksize: int
    nested_blocksize: int
    nested_offset: float

    @classmethod
    def read(cls, layer: Scope, kind: str, shape: tuple[int, int]) -> "State":
        """As JSON in bytes. Raises CheckpointError for another kind, another shape or blocks that are not ours."""
        key = f"weight.quant_state.{METHOD}__{kind}"
        if not layer.has(key):
            raise CheckpointError(f"{layer.name}.weight is not stored as {kind}: give the model it was made from")
        try:
            said = json.loads(bytes(layer.whole(key).tolist()))
            state = cls(said["blocksize"], said.get("nested_blocksize", 0), said.get("nested_offset", 0.0))
            stored = tuple(said["shape"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{layer.name}.{key} is broken ({error}): download the checkpoint again") from error
        if stored != shape:
            raise CheckpointError(f"{layer.name}.weight is of shape {list(stored)}, not {list(shape)}")
        if state.blocksize % codes.run_of(shape[1]):
            raise CheckpointError(
                f"{layer.name}.weight is in blocks of {state.blocksize}, and blocks of {codes.BLOCK} or a multiple are "
                "read: give the model it was made from"
            )
        return state


def _unnested(layer: Scope, state: State) -> Tensor:
    """The blocks' absmax, which were quantized themselves."""
    levels, absmax = layer.whole("weight.nested_quant_map"), layer.whole("weight.nested_absmax")
    stored = layer.whole(ABSMAX)
    each = absmax.repeat_interleave(state.nested_blocksize)[: len(stored)]
    return levels[stored.int()] * each + state.nested_offset


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked(Linear):
    """A layer by torch alone, its floats made anew for every product: slow, and no larger in memory."""

    codes: Tensor
    absmax: Tensor
    levels: Sequence[float]
    epilogue: Epilogue
    tile: int

    def __call__(self, x: Tensor, times: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
        dtype = self.epilogue.dtype
        weight = codes.dequantize(self.codes, self.absmax, self.levels).to(dtype)
        bias = None if self.epilogue.bias is None else self.epilogue.bias.to(dtype)
        return TorchLinear(weight, replace(self.epilogue, bias=bias), self.tile)(x.to(dtype), times, plus)
