"""One recording of a bucket's forward is right for every later batch of it: first steps and padded rows included."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.support import asks, engine, request, run, sampled, start
from tests.models import cases
from tests.models.tiny import Case, checkpoint
from transduce.device.cpu import CPU

T = TypeVar("T")
FOUR = (cases.BART[0], cases.T5[2], cases.MARIAN[3], cases.WHISPER[0])
FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "aten::equal")


class NoHostSync(TorchDispatchMode):
    """Refuses operators whose result the host must wait for, or whose shape depends on values."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        assert not any(name in func.name() for name in FORBIDDEN), func.name()
        return func(*args, **(kwargs or {}))


class Recorder(CPU):
    """Captures by recording every operator once, on whatever the buffers hold then, and replays that."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[list[int]] = []

    def capture(self, fn: Callable[..., T], *static: Tensor) -> Callable[[], T]:
        self.addresses.append([tensor.data_ptr() for tensor in static])
        with NoHostSync():  # type: ignore[no-untyped-call]  # torch's class is untyped
            fn(*static)
        recording: Callable[..., T] = make_fx(fn)(*static)
        at = len(self.addresses) - 1

        def replay() -> T:
            assert [tensor.data_ptr() for tensor in static] == self.addresses[at], "a static buffer has moved"
            return recording(*static)

        return replay


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
@pytest.mark.parametrize("case", FOUR, ids=lambda case: case.model_type)
def test_a_recording_serves_its_bucket(case: Case, backend: str, tmp_path: Path) -> None:
    made = checkpoint(case)
    some = asks(made, start(case), 14, seed=11)
    wanted = [sampled(ask, i, width=1 + i % 3) if i % 2 else ask for i, ask in enumerate(some)]
    requests = [request(made, ask, str(i), salt=str(i)) for i, ask in enumerate(wanted)]
    options: dict[str, Any] = {"attention_backend": backend, "max_num_seqs": 6, "max_num_batched_tokens": 16}
    expected = run(engine(case, tmp_path, **options).engine, requests)
    recorder = Recorder()
    recorded = engine(case, tmp_path, device=recorder, **options).engine
    assert run(recorded, requests) == expected
    graphs = recorded.runner.graphs
    assert graphs.captures == len(recorder.addresses)
    assert graphs.replays > 2 * graphs.captures
