"""From a plan's integers to tensors: one decoder step in static buffers, one packed encoder pass.

Owns HostStep (numpy), Bucket and StaticInputs (tensors with fixed addresses), encoder_batch. Knows no scheduler state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.attention.base import AttentionBackend, Segments
from transduce.core.plan import Chunk, EncodeJob
from transduce.core.request import Read
from transduce.device.base import Device
from transduce.layers.step import EncoderBatch, GroupStep, StepInput

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A read of this step: the hidden row it needs, and whose it is."""

    row: int
    seq_id: int
    read: Read


@dataclass(frozen=True, slots=True, eq=False)
class HostStep:
    """One decoder step on the host. tokens, positions: [tokens]; slots: [slabs, tokens] of the self group."""

    tokens: Ints
    positions: Ints
    slots: Ints
    segments: dict[str, Segments]
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sizes of a step's buffers: tokens, and per KV group (segments, logical blocks of the widest table)."""

    tokens: int
    groups: tuple[tuple[str, int, int], ...]


def host_step(chunks: Sequence[Chunk], block_size: int, slabs: dict[str, int]) -> HostStep:
    """Lay the chunks' tokens one after another."""
    lengths = np.array([len(chunk.tokens) for chunk in chunks])
    starts = np.array([chunk.start for chunk in chunks])
    first = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.array([token for chunk in chunks for token in chunk.tokens], dtype=np.int64)
    positions = np.arange(first[-1]) - np.repeat(first[:-1] - starts, lengths)
    own = _segments(_self_segments(chunks), slabs["self"])
    segments = {"self": own}
    if "cross" in slabs:
        segments["cross"] = _segments(_cross_segments(chunks), slabs["cross"])
    blocks = np.repeat(own.blocks, lengths, axis=0)[np.arange(first[-1]), positions // block_size]
    slots = (blocks.astype(np.int64) * block_size + (positions % block_size)[:, None]).T
    wanted = tuple(
        Wanted(int(first[i]) + read.position - chunk.start, chunk.seq_id, read)
        for i, chunk in enumerate(chunks)
        for read in chunk.reads
    )
    return HostStep(tokens, positions, slots, segments, wanted)


_Segment = tuple[int, int, int, Sequence[int], int]  # q_len, q_pos, kv_len, blocks, table


def _self_segments(chunks: Sequence[Chunk]) -> Iterator[_Segment]:
    for chunk in chunks:
        length = len(chunk.tokens)
        yield length, chunk.start, chunk.start + length, chunk.self_blocks, chunk.seq_id


def _cross_segments(chunks: Sequence[Chunk]) -> Iterator[_Segment]:
    for chunk in chunks:
        position = chunk.start
        for segment in chunk.cross:
            yield segment.length, position, segment.kv_len, segment.blocks, segment.table
            position += segment.length


def _segments(rows: Iterator[_Segment], slabs: int) -> Segments:
    q_len, q_pos, kv_len, blocks, table = zip(*rows, strict=True)
    width = max(1, max(len(each) for each in blocks) // slabs)
    padded = np.zeros((len(blocks), width * slabs), dtype=np.int32)
    for row, each in zip(padded, blocks, strict=True):
        row[: len(each)] = each
    ints = (np.array(column, dtype=np.int32) for column in (q_len, q_pos, kv_len, table))
    lengths, positions, kv_lengths, tables = ints
    return Segments(lengths, positions, kv_lengths, padded.reshape(len(blocks), width, slabs), tables)


def bucket_for(step: HostStep, least: int) -> Bucket:
    """The smallest bucket of at least `least` tokens that holds the step, with a segment to spare for padded rows."""
    groups = tuple(
        (name, _at_least(len(each.q_len) + 1), _at_least(each.blocks.shape[1]))
        for name, each in sorted(step.segments.items())
    )
    return Bucket(padded(len(step.tokens), least), groups)


def padded(tokens: int, least: int) -> int:
    """Tokens of the smallest bucket of at least `least` that holds so many."""
    return max(least, _at_least(tokens))


def _at_least(n: int) -> int:
    """n rounded up to a power of two, or above 64 to a multiple of 64: few buckets, little padding."""
    return 1 << (n - 1).bit_length() if n <= 64 else -(-n // 64) * 64


class StaticInputs:
    """One bucket's StepInput. `fill` rewrites the contents; every tensor keeps its address."""

    def __init__(self, bucket: Bucket, slabs: dict[str, int], backend: AttentionBackend, device: Device) -> None:
        self._bucket = bucket
        self._backend = backend
        self._device = device
        place = device.torch_device
        self._tokens = torch.zeros(bucket.tokens, dtype=torch.int64, device=place)
        self._positions = torch.zeros_like(self._tokens)
        self._slots = torch.zeros(slabs["self"], bucket.tokens, dtype=torch.int64, device=place)
        self._metas = {
            name: backend.plan(_nothing(bucket.tokens, segments, width, slabs[name]), None)
            for name, segments, width in bucket.groups
        }
        self._sees = {
            name: torch.zeros(bucket.tokens, 1, dtype=torch.bool, device=place)
            for name in self._metas
            if name != "self"
        }

    @property
    def step(self) -> StepInput:
        """The step in these buffers."""
        groups = {
            name: GroupStep(meta, self._slots if name == "self" else None, self._sees.get(name))
            for name, meta in self._metas.items()
        }
        return StepInput(self._tokens, self._positions, groups)

    def fill(self, step: HostStep) -> None:
        """Write a step that fits the bucket; rows past its own are padded: they see nothing and write to block 0."""
        for buffer, data in ((self._tokens, step.tokens), (self._positions, step.positions), (self._slots, step.slots)):
            filled = np.zeros(buffer.shape, dtype=np.int64)
            filled[..., : data.shape[-1]] = data
            buffer.copy_(self._device.tensor(filled, torch.int64))
        for name, segments, width in self._bucket.groups:
            padded = _pad(step.segments[name], self._bucket.tokens, segments, width)
            self._backend.plan(padded, self._metas[name])
            if (sees := self._sees.get(name)) is not None:
                sees[:, 0] = self._device.tensor(np.repeat(padded.kv_len > 0, padded.q_len), torch.bool)


def _nothing(tokens: int, segments: int, width: int, slabs: int) -> Segments:
    empty = np.zeros(0, dtype=np.int32)
    return _pad(Segments(empty, empty, empty, np.zeros((0, 1, slabs), dtype=np.int32), empty), tokens, segments, width)


def _pad(own: Segments, tokens: int, segments: int, width: int) -> Segments:
    """Fill up to `segments`: the first extra one takes the padded rows, all extra ones see nothing."""
    count, used, slabs = len(own.q_len), own.blocks.shape[1], own.blocks.shape[2]
    blocks = np.zeros((segments, width, slabs), dtype=np.int32)
    blocks[:count, :used] = own.blocks
    q_len, q_pos, kv_len, table = np.zeros((4, segments), dtype=np.int32)
    for column, given in ((q_len, own.q_len), (q_pos, own.q_pos), (kv_len, own.kv_len), (table, own.table)):
        column[:count] = given
    q_len[count] = tokens - own.q_len.sum()
    return Segments(q_len, q_pos, kv_len, blocks, table)


def encoder_batch(jobs: Sequence[EncodeJob], device: Device, dtype: torch.dtype) -> EncoderBatch:
    """The jobs' items packed: integer items are token ids, float items are features, with or without ids behind."""
    lengths = tuple(job.item.rows for job in jobs)
    texts = [(job.item.ids, job.item.rows) for job in jobs]
    features = tuple(device.tensor(job.item.data, dtype) for job in jobs if job.item.data.dtype != np.int64)
    tokens = np.concatenate([ids for ids, _ in texts])
    positions = np.concatenate([np.arange(rows - len(ids), rows) for ids, rows in texts])
    ids, places = device.tensor(tokens, torch.int64), device.tensor(positions, torch.int64)
    return EncoderBatch(lengths, ids, places, features)


def cross_slots(jobs: Sequence[EncodeJob], block_size: int, slabs: int, device: Device) -> Tensor:
    """Where the jobs' rows go: [slabs, rows], block * block_size + offset."""
    parts = []
    for job in jobs:
        rows = np.arange(job.start, job.start + job.item.rows)
        blocks = np.array(job.blocks, dtype=np.int64).reshape(-1, slabs)[rows // block_size]
        parts.append((blocks * block_size + (rows % block_size)[:, None]).T)
    return device.tensor(np.concatenate(parts, axis=1), torch.int64)
