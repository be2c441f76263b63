"""Runs one of our models on the reference backend and beside transformers: ragged batches, chunk by chunk.

state dict, config dict ─> `load` ─> Loaded ─> `run(chunk)` ─> encoder rows and logits per sequence
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.attention.base import Segments
from transduce.attention.reference import Reference
from transduce.errors import CheckpointError
from transduce.layers.build import Builder, Context
from transduce.layers.kv import KVSlot
from transduce.layers.step import EncoderBatch, GroupStep, StepInput
from transduce.models.base import Family, Model
from transduce.quant.none import Unquantized

BLOCK_SIZE = 4
TOLERANCE = 2e-5


@dataclass
class StateDict:
    """Weights over a dict in checkpoint names; `unknown` are the tensors no one asked for."""

    tensors: dict[str, Tensor]
    asked: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        self.asked.add(name)
        return name in self.tensors

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self.asked.add(name)
        if name not in self.tensors or self.tensors[name].shape != shape:
            raise CheckpointError(f"{name}: {self.tensors.get(name)} is not {shape}")
        return self.tensors[name]

    def whole(self, name: str) -> Tensor:
        return self.get(name, tuple(self.tensors[name].shape))

    def generator(self, name: str) -> None:
        return None

    @property
    def unknown(self) -> set[str]:
        return set(self.tensors) - self.asked


@dataclass
class Slots:
    """The KV slots a model asked for, by group and layer."""

    by_layer: dict[tuple[str, int], KVSlot] = field(default_factory=dict)

    def __call__(self, group: str, layer: int) -> KVSlot:
        return self.by_layer.setdefault((group, layer), KVSlot(depth_index=layer, slab=0))


@dataclass(frozen=True)
class Loaded:
    model: Model
    slots: Slots
    weights: StateDict
    dtype: torch.dtype


def load(
    family: Family, raw: Mapping[str, Any], state: Mapping[str, Tensor], dtype: torch.dtype = torch.float32
) -> Loaded:
    named = {family.rename(name): tensor for name, tensor in state.items()}
    weights = StateDict({name: tensor for name, tensor in named.items() if name is not None})
    slots = Slots()
    context = Context(Reference(), Unquantized(), dtype, torch.device("cpu"), slots)
    return Loaded(family.build(family.config(raw), Builder(weights, context)), slots, weights, dtype)


@dataclass(frozen=True)
class Source:
    """One sequence's encoder input: token ids, or features such as [mels, frames]. rows: of the encoder's output."""

    tokens: Tensor
    rows: int
    features: Tensor | None = None

    @property
    def given(self) -> Tensor:
        """What transformers' models are given."""
        return self.tokens if self.features is None else self.features


@dataclass(frozen=True)
class Result:
    """encoded: rows [rows, d] per item. logits: [decoder tokens, vocab] per sequence."""

    encoded: list[Tensor]
    logits: list[Tensor]


class Run:
    """One ragged batch in pages of its own; `decode` takes a chunk of every sequence at a time."""

    def __init__(self, loaded: Loaded, sources: Sequence[Source], decoder: Sequence[Sequence[int]]) -> None:
        self.loaded, self.decoder = loaded, decoder
        self.rows = [source.rows for source in sources]
        self.self_blocks = self._blocks([len(tokens) for tokens in decoder], first=1)
        self.cross_blocks = self._blocks(self.rows, first=1 + self.self_blocks.size)
        self._allocate()
        self.encoded = self._encode(sources)

    def _blocks(self, lengths: Sequence[int], first: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Block ids [sequences, blocks, 1 slab], in an order that no sequence's blocks follow each other."""
        blocks = -(-max(lengths) // BLOCK_SIZE)
        ids = np.arange(first, first + blocks * len(lengths), dtype=np.int32)
        return np.ascontiguousarray(ids[::-1].reshape(blocks, len(lengths), 1).transpose(1, 0, 2))

    def _allocate(self) -> None:
        spec, backend = self.loaded.model.spec, Reference()
        total = 1 + self.self_blocks.size + self.cross_blocks.size
        for slot in self.loaded.slots.by_layer.values():
            cache = backend.cache(
                total, spec.kv_heads, spec.head_dim, BLOCK_SIZE, self.loaded.dtype, torch.device("cpu")
            )
            slot.bound = cache

    def _slots(self, blocks: np.ndarray[Any, np.dtype[np.int32]], spans: Sequence[tuple[int, int]]) -> Tensor:
        """slots [1 slab, tokens] of positions start..end of each sequence."""
        places = [
            blocks[i, position // BLOCK_SIZE, 0] * BLOCK_SIZE + position % BLOCK_SIZE
            for i, (start, end) in enumerate(spans)
            for position in range(start, end)
        ]
        return torch.tensor([places], dtype=torch.int64)

    def _encode(self, sources: Sequence[Source]) -> list[Tensor]:
        positions = torch.cat([torch.arange(len(source.tokens)) for source in sources])
        features = tuple(source.features for source in sources if source.features is not None)
        tokens = torch.cat([source.tokens for source in sources])
        encoded = self.loaded.model.encode(EncoderBatch(tuple(self.rows), tokens, positions, features))
        self.loaded.model.write_cross(encoded, self._slots(self.cross_blocks, [(0, n) for n in self.rows]))
        return list(encoded.split(self.rows))

    def step(self, spans: Sequence[tuple[int, int]]) -> StepInput:
        """The step that feeds decoder tokens start..end of each sequence."""
        q_len = np.array([end - start for start, end in spans], dtype=np.int32)
        q_pos = np.array([start for start, _ in spans], dtype=np.int32)
        tokens = [token for row, (start, end) in zip(self.decoder, spans, strict=True) for token in row[start:end]]
        positions = [position for start, end in spans for position in range(start, end)]
        plan = Reference().plan
        table = np.arange(len(spans), dtype=np.int32)
        self_meta = plan(Segments(q_len, q_pos, q_pos + q_len, self.self_blocks, table), None)
        rows = np.array(self.rows, dtype=np.int32)
        cross_meta = plan(Segments(q_len, q_pos, rows, self.cross_blocks, table), None)
        groups = {
            "self": GroupStep(self_meta, self._slots(self.self_blocks, spans), None),
            "cross": GroupStep(cross_meta, None, torch.ones(len(tokens), 1, dtype=torch.bool)),
        }
        return StepInput(torch.tensor(tokens), torch.tensor(positions), groups)

    def decode(self, chunk: int) -> list[Tensor]:
        """Logits at every decoder position, `chunk` tokens of every sequence a step."""
        logits: list[list[Tensor]] = [[] for _ in self.decoder]
        for start in range(0, max(map(len, self.decoder)), chunk):
            spans = [(min(start, len(row)), min(start + chunk, len(row))) for row in self.decoder]
            hidden = self.loaded.model.forward(self.step(spans))
            out = self.loaded.model.heads["lm"](hidden)
            for rows, part in zip(logits, out.split([end - begin for begin, end in spans]), strict=True):
                rows.append(part)
        return [torch.cat(rows) for rows in logits]


def run(loaded: Loaded, sources: Sequence[Source], decoder: Sequence[Sequence[int]], chunk: int) -> Result:
    with torch.inference_mode():
        batch = Run(loaded, sources, decoder)
        return Result(batch.encoded, batch.decode(chunk))


def difference(ours: Result, theirs: Result) -> float:
    """The largest absolute difference over encoder rows and logits, relative to their own size."""
    pairs = [*zip(ours.encoded, theirs.encoded, strict=True), *zip(ours.logits, theirs.logits, strict=True)]
    return max(float((a.float() - b.float()).abs().max() / b.abs().max().clamp(min=1.0)) for a, b in pairs)


def distinct(results: Result) -> int:
    """How many different tokens are the best one at some position."""
    return len({int(token) for logits in results.logits for token in logits.argmax(-1)})


Oracle = Callable[[Source, Sequence[int]], tuple[Tensor, Tensor]]


def reference(oracle: Oracle, sources: Sequence[Source], decoder: Sequence[Sequence[int]]) -> Result:
    """What the oracle says, one sequence at a time and so without padding."""
    with torch.inference_mode():
        pairs = [oracle(source, tokens) for source, tokens in zip(sources, decoder, strict=True)]
    return Result([encoded for encoded, _ in pairs], [logits for _, logits in pairs])
