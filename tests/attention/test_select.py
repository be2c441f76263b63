"""Discovery and choice of backends."""

import pytest
import torch

from transduce.attention import backends, named, select
from transduce.errors import ConfigError


def test_backends_are_found_in_order_of_priority() -> None:
    priorities = [backend.caps.priority for backend in backends()]
    assert priorities == sorted(priorities, reverse=True)
    names = [backend.caps.name for backend in backends()]
    assert len(names) == len(set(names))
    assert {"sdpa", "reference"} <= set(names)


def test_named_is_one_stateless_instance() -> None:
    assert named("reference") is named("reference")
    assert named("reference") in backends()
    with pytest.raises(ConfigError, match=r"no attention backend 'flush'.*sdpa.*reference"):
        named("flush")


def test_the_highest_priority_that_can_is_chosen() -> None:
    chosen = select("cpu", torch.float32, 64, True, False, False)
    assert chosen is max(
        (b for b in backends() if torch.float32 in b.caps.dtypes and b.caps.bias), key=lambda b: b.caps.priority
    )
    assert select("cpu", torch.float32, 64, False, True, False).caps.softcap
    assert select("cpu", torch.bfloat16, 64, False, False, False, name="reference") is named("reference")


@pytest.mark.parametrize(
    ("device", "dtype", "head_dim", "softcap", "name", "missing"),
    [
        ("abacus", torch.float32, 64, False, None, "device abacus.*device abacus"),
        ("cpu", torch.int8, 64, False, None, "dtype torch.int8"),
        ("cpu", torch.float32, 100_000, False, None, "head size 100000"),
        ("cpu", torch.float32, 64, True, "sdpa", "sdpa lacks a softcap.*There are: .*reference"),
        ("cpu", torch.float32, 64, False, "nothing", "no attention backend 'nothing'"),
    ],
)
def test_the_error_says_what_is_missing(
    device: str, dtype: torch.dtype, head_dim: int, softcap: bool, name: str | None, missing: str
) -> None:
    with pytest.raises(ConfigError, match=missing):
        select(device, dtype, head_dim, False, softcap, False, name)
