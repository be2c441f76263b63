"""The decoder's forward can be recorded: no host sync, and one recording is right for later inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from tests.models import cases
from tests.models.harness import Run, load
from tests.models.tiny import Case, checkpoint
from transduce.layers.step import StepInput
from transduce.models.base import Model, find

FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "aten::unique", "aten::equal")


class NoHostSync(TorchDispatchMode):
    """Refuses operators whose result the host must wait for or whose shape depends on values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        assert not any(name in func.name() for name in FORBIDDEN), func.name()
        return func(*args, **(kwargs or {}))


def _batch(case: Case) -> Run:
    made = checkpoint(case)
    loaded = load(find(case.model_type), made.raw, made.state)
    return Run(loaded, made.sources, made.decoder)


def _logits(model: Model, step: StepInput) -> Tensor:
    return model.heads["lm"](model.forward(step))


@pytest.mark.parametrize("case", cases.ONE_EACH, ids=lambda case: case.model_type)
def test_a_forward_never_waits_for_the_host(case: Case) -> None:
    with torch.no_grad():
        batch = _batch(case)
        step = batch.step([(0, min(2, len(row))) for row in batch.decoder])
        with NoHostSync():
            _logits(batch.loaded.model, step)


@pytest.mark.parametrize("case", cases.ONE_EACH, ids=lambda case: case.model_type)
def test_one_recording_is_right_for_later_tokens(case: Case) -> None:
    with torch.no_grad():
        batch = _batch(case)
        model = batch.loaded.model
        first = batch.step([(0, 1) for _ in batch.decoder])

        def forward(tokens: Tensor, positions: Tensor) -> Tensor:
            return _logits(model, replace(first, tokens=tokens, positions=positions))

        recording = make_fx(forward)(first.tokens, first.positions)
        tokens, positions = first.tokens.flip(0), first.positions + 1
        expected = forward(tokens, positions)
        assert torch.equal(recording(tokens, positions), expected)
        assert not torch.equal(forward(first.tokens, first.positions), expected)
