"""Rows of a table of integers against torch's own look-up, at every level that this CPU runs."""

import pytest
import torch

from transduce.kernels import load
from transduce.kernels.lookup import look_up


@pytest.mark.parametrize("level", load.usable_levels())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("d", [1, 15, 16, 40, 96])
def test_rows_are_scaled_and_rounded_once(level: str, dtype: torch.dtype, d: int) -> None:
    torch.manual_seed(d)
    table = torch.randint(-127, 128, (50, d), dtype=torch.int8)
    scale = torch.rand(50)
    for count in (0, 1, 33):
        ids = torch.randint(0, 50, (count,))
        rows = look_up(load.load(level), ids, table, scale, dtype)
        assert torch.equal(rows, (table[ids] * scale[ids, None]).to(dtype))
