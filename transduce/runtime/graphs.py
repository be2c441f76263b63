"""Running the decoder forward in buckets: static inputs and a captured graph for each, made when first needed.

Owns the buckets' buffers and graphs. Knows no model but its forward, and nothing of what the rows mean.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from transduce.attention.base import AttentionBackend
from transduce.device.base import Device
from transduce.layers.step import GroupStep, StepInput
from transduce.runtime.inputs import Bucket, HostStep, StaticInputs, bucket_for, padded

KEPT = 64
"""Buckets kept; the least recently used one goes."""


@dataclass(frozen=True, slots=True, eq=False)
class _Captured:
    inputs: StaticInputs
    run: Callable[[], Tensor]
    replays: bool


class Graphs:
    """The decoder forward over buckets of at least `least` tokens.

    captures: buckets that were captured. replays: steps that replayed one. eager: steps of those not worth capturing.
    """

    def __init__(
        self,
        forward: Callable[[StepInput], Tensor],
        slabs: dict[str, int],
        backend: AttentionBackend,
        device: Device,
        least: int,
    ) -> None:
        self._forward = forward
        self._slabs = slabs
        self._backend = backend
        self._device = device
        self._least = least
        self._buckets: OrderedDict[Bucket, _Captured] = OrderedDict()
        self.captures = 0
        self.replays = 0
        self.eager = 0

    def run(self, step: HostStep) -> Tensor:
        """Hidden rows [bucket tokens, d]; those past the step's own tokens are padding."""
        bucket = bucket_for(step, self._least)
        captured = self._buckets.pop(bucket, None)
        inputs = captured.inputs if captured else StaticInputs(bucket, self._slabs, self._backend, self._device)
        inputs.fill(step)
        if captured is None:
            captured = self._capture(inputs)
        self._buckets[bucket] = captured
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)
        self.replays += captured.replays
        self.eager += not captured.replays
        return captured.run()

    def trace(self, step: HostStep) -> tuple[Tensor, list[Tensor]]:
        """The same, eager, and the queries of each cross-attention layer [bucket tokens, heads, head_dim]."""
        queries: list[Tensor] = []
        inputs = StaticInputs(bucket_for(step, self._least), self._slabs, self._backend, self._device)
        inputs.fill(step)
        groups = inputs.step.groups
        traced = {**groups, "cross": replace(groups["cross"], queries=queries)}
        self.eager += 1
        return self._forward(replace(inputs.step, groups=traced)), queries

    def computed(self, tokens: int) -> int:
        """Rows that a step of so many tokens computes, padding included."""
        return padded(tokens, self._least)

    def _capture(self, inputs: StaticInputs) -> _Captured:
        tensors, rebuild = _flatten(inputs.step)
        replay = self._device.capture(lambda *args: self._forward(rebuild(args)), *tensors)
        if replay is None:
            return _Captured(inputs, partial(self._forward, inputs.step), False)
        self.captures += 1
        return _Captured(inputs, replay, True)


def _flatten(step: StepInput) -> tuple[list[Tensor], Callable[[tuple[Tensor, ...]], StepInput]]:
    """A step's tensors in order, and the way back: captures take tensors, forwards take steps."""
    names = sorted(step.groups)
    tensors = [step.tokens, step.positions]
    for name in names:
        group = step.groups[name]
        tensors += [*group.meta, *(tensor for tensor in (group.slots, group.sees) if tensor is not None)]

    def rebuild(args: tuple[Tensor, ...]) -> StepInput:
        rest = iter(args[2:])
        groups = {}
        for name in names:
            group = step.groups[name]
            meta = tuple(next(rest) for _ in group.meta)
            slots, sees = (None if tensor is None else next(rest) for tensor in (group.slots, group.sees))
            groups[name] = GroupStep(meta, slots, sees)
        return StepInput(args[0], args[1], groups)

    return tensors, rebuild
