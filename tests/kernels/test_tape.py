"""A taped forward: right for whatever its static inputs hold when it is replayed."""

from collections.abc import Callable
from ctypes import CDLL

import pytest
import torch
from torch import Tensor

from transduce.kernels import load, ops, paged, tape
from transduce.kernels.linear import Activation, Packed, pack
from transduce.kernels.tape import Scratch

SIZE = 96


def library() -> CDLL:
    found = load.library()
    assert found is not None
    return found


@pytest.fixture
def layers() -> list[Packed]:
    torch.manual_seed(0)
    return [pack(library(), torch.randn(SIZE, SIZE) / 8, None, torch.randn(SIZE), Activation.GELU) for _ in range(3)]


def recorded(run: Callable[..., Tensor], static: list[Tensor], scratch: Scratch) -> Callable[[], Tensor]:
    replay = tape.record(run, static, scratch)
    assert replay is not None
    return replay


def forward(layers: list[Packed], table: Tensor, weight: Tensor) -> Callable[[Tensor], Tensor]:
    """A look-up, kernels, and an addition between them."""

    def run(ids: Tensor) -> Tensor:
        x = table[ids]
        for layer in layers:
            x = ops.layer_norm(ops.linear(layer, x, torch.float32, None, x), weight, weight, 1e-5)
            x = x.view(len(ids), 2, -1).flatten(1) + 1
        return ops.rms_norm(x, weight, 1e-6)

    return run


def test_a_replay_is_the_forward_on_new_contents(layers: list[Packed]) -> None:
    run, ids = forward(layers, torch.randn(50, SIZE), torch.randn(SIZE)), torch.arange(7)
    replay = recorded(run, [ids], Scratch())
    seen = []
    for first in (0, 20, 3):
        ids.copy_(torch.arange(first, first + 7))
        result = replay()
        assert torch.equal(result, run(ids))
        seen.append(result.clone())
    assert not torch.equal(seen[0], seen[1])


def test_tapes_share_memory_and_take_turns(layers: list[Packed]) -> None:
    run, few, many = forward(layers, torch.randn(50, SIZE), torch.randn(SIZE)), torch.arange(3), torch.arange(40)
    scratch = Scratch()
    replays = [recorded(run, [each], scratch) for each in (few, many)]
    for _ in range(2):
        for ids, replay in zip((few, many), replays, strict=True):
            assert torch.equal(replay(), run(ids))
            ids.add_(1)


def test_engines_do_not_share_memory(layers: list[Packed]) -> None:
    run, one, other = forward(layers, torch.randn(50, SIZE), torch.randn(SIZE)), torch.arange(3), torch.arange(9, 12)
    first, second = recorded(run, [one], Scratch()), recorded(run, [other], Scratch())
    result = first()
    kept = result.clone()
    second()
    assert torch.equal(result, kept)


def test_what_writes_in_place_writes_again(layers: list[Packed]) -> None:
    total = torch.zeros(2, SIZE)

    def run(x: Tensor) -> Tensor:
        total.add_(x)
        return ops.linear(layers[0], total, torch.float32, None, None)

    x = torch.ones(2, SIZE)
    replay = recorded(run, [x], Scratch())
    x.fill_(2)
    replay()
    assert torch.equal(total, torch.full_like(total, 3))


@torch.inference_mode()
def test_what_may_be_a_view_or_a_copy_is_what_it_was(layers: list[Packed]) -> None:
    """In inference mode the recorder sees `to` and `contiguous` themselves."""

    def run(x: Tensor) -> Tensor:
        halves = x.to(torch.float32).reshape(2, 2, SIZE).transpose(0, 1).contiguous().to(torch.float32)
        return ops.linear(layers[0], halves.flatten(0, 1), torch.float32, None, None)

    x = torch.ones(4, SIZE, dtype=torch.float64)
    replay = recorded(run, [x], Scratch())
    x.copy_(torch.randn(4, SIZE))
    assert torch.equal(replay(), run(x))


def test_an_operator_of_several_results_is_not_taped(layers: list[Packed]) -> None:
    def run(x: Tensor) -> Tensor:
        values, _ = x.sort(dim=1)
        return ops.linear(layers[0], values, torch.float32, None, None)

    assert tape.record(run, [torch.randn(4, SIZE)], Scratch()) is None


def test_a_forward_of_few_kernels_is_not_taped(layers: list[Packed]) -> None:
    def run(x: Tensor) -> Tensor:
        for _ in range(tape.MOST_REPEATED + 1):
            x = x + 1
        return ops.linear(layers[0], x, torch.float32, None, None)

    assert tape.record(run, [torch.ones(2, SIZE)], Scratch()) is None


def test_nor_is_one_of_large_results(layers: list[Packed], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(x: Tensor) -> Tensor:
        return ops.linear(layers[0], x, torch.float32, None, None)

    x = torch.ones(3, SIZE)
    assert tape.record(run, [x], Scratch()) is not None
    monkeypatch.setattr(tape, "MOST_BYTES", 2 * SIZE * 4)
    assert tape.record(run, [x], Scratch()) is None


def test_a_taped_forward_has_no_python_in_it(layers: list[Packed]) -> None:
    calls = []

    def run(x: Tensor) -> Tensor:
        calls.append(len(x))
        return ops.linear(layers[0], x, torch.float32, None, None)

    replay = recorded(run, [torch.ones(2, SIZE)], Scratch())
    replay()
    assert len(calls) == 1


def test_a_copy_that_no_one_would_make_again_is_refused() -> None:
    pages = torch.zeros(2, 2, 1, 16, 16, dtype=torch.bfloat16)
    k = torch.ones(1, 1, 16)
    with pytest.raises(AssertionError, match="would not be made again"):
        tape.record(lambda slots: paged.write(library(), pages, k, k, slots), [torch.tensor([17])], Scratch())
    paged.write(library(), pages, k, k, torch.tensor([17]))
    assert pages.count_nonzero() == 32
