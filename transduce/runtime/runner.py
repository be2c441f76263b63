"""Runs a StepPlan: copies, encoder and cross KV, decoder forward, heads, rules, sampling.

Owns the model, its pages and the rule states. Knows no request and no scheduler; one runner serves every family.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from transduce.core.plan import Chunk, EncodeJob, StepPlan, StepResult
from transduce.device.base import Device
from transduce.models.base import Head, Model
from transduce.runtime.candidates import candidates
from transduce.runtime.graphs import Graphs
from transduce.runtime.inputs import Wanted, cross_slots, encoder_batch, host_step
from transduce.runtime.layout import KVLayout
from transduce.runtime.rule_states import RuleStates
from transduce.runtime.sampler import Choose, best_or_drawn
from transduce.runtime.targets import targets

CHOOSE: Mapping[str, Choose] = {"samples": best_or_drawn, "beams": candidates, "target": targets}

LOGITS_BYTES = 64 << 20
"""Logits are made and read in slices of rows of about this size: a vocabulary can be 256,000 wide."""


class Runner:
    """Plan in, StepResult out. `rules`: those in use. `graphs` counts captures and replays of the decoder forward."""

    def __init__(
        self, model: Model, layout: KVLayout, graphs: Graphs, rules: RuleStates, device: Device, dtype: torch.dtype
    ) -> None:
        self._model = model
        self._layout = layout
        self.graphs = graphs
        self.rules = rules
        self._device = device
        self._dtype = dtype
        self._slabs = layout.all_slabs
        self._rows_per_slice = max(1, LOGITS_BYTES // (model.spec.vocab_size * 4))

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepResult:
        """Execute the plan, in the order its docstring gives."""
        self.rules.update(plan)
        if plan.copies:
            self._layout.copy(plan.copies)
        if plan.encode:
            self._encode(plan.encode)
        result = StepResult()
        for chunk in plan.chunks:
            self.rules.advance(chunk)
        for traced, chunks in groupby(sorted(plan.chunks, key=_traced), key=_traced):
            self._decode(list(chunks), traced, result)
        return result

    def _decode(self, chunks: Sequence[Chunk], traced: bool, result: StepResult) -> None:
        step = host_step(chunks, self._layout.block_size, self._slabs)
        if traced:
            hidden, queries = self.graphs.trace(step)
            self._attend(queries, chunks, result)
        else:
            hidden = self.graphs.run(step)
        self._read(hidden, step.wanted, result)

    def _attend(self, queries: Sequence[Tensor], chunks: Sequence[Chunk], result: StepResult) -> None:
        slabs, first = self._slabs["cross"], 0
        for chunk in chunks:
            assert chunk.attention is not None
            (seen,) = chunk.cross
            tables = [seen.blocks[slab::slabs] for slab in range(slabs)]
            own = [q[first : first + seen.length] for q in queries]
            weights = self._model.attention(own, chunk.attention.heads, tables, chunk.attention.rows)
            result.weights[chunk.seq_id] = weights.cpu().numpy()
            first += seen.length

    def _encode(self, jobs: Sequence[EncodeJob]) -> None:
        encoded = self._model.encode(encoder_batch(jobs, self._device, self._dtype))
        slots = cross_slots(jobs, self._layout.block_size, self._slabs["cross"], self._device)
        self._model.write_cross(encoded, slots)

    def _read(self, hidden: Tensor, wanted: Sequence[Wanted], result: StepResult) -> None:
        for (head, kind), reads in groupby(sorted(wanted, key=_kind), key=_kind):
            for part in _slices(list(reads), self._rows_per_slice):
                rows = self._device.tensor(np.array([each.row for each in part]), torch.int64)
                self._choose(CHOOSE[kind], self._model.heads[head], hidden.index_select(0, rows), part, result)

    def _choose(self, choose: Choose, head: Head, hidden: Tensor, wanted: Sequence[Wanted], result: StepResult) -> None:
        obeying = {row for row, each in enumerate(wanted) if self.rules.obeys(each.seq_id, each.read.position)}

        def edit(rows: Sequence[int], scores: Tensor) -> None:
            self.rules.edit([(wanted[row].seq_id, wanted[row].read.position) for row in rows], scores)

        choices = choose(head, hidden, [each.read for each in wanted], obeying, edit)
        for each, choice in zip(wanted, choices, strict=True):
            found = result.choices if each.read.target is None else result.targets
            found[each.seq_id, each.read.position] = choice


def _traced(chunk: Chunk) -> bool:
    return chunk.attention is not None


def _kind(wanted: Wanted) -> tuple[str, str]:
    read = wanted.read
    return read.head, "target" if read.target is not None else "beams" if read.beams else "samples"


def _slices(wanted: Sequence[Wanted], size: int) -> Iterator[Sequence[Wanted]]:
    for start in range(0, len(wanted), size):
        yield wanted[start : start + size]
