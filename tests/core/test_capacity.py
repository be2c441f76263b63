"""Capacity: what fits, and a refusal whose numbers are right."""

import re
from dataclasses import replace

import pytest

from tests.core.requests import item, request, source
from transduce.core.capacity import Budgets, refuse_if_too_large, room
from transduce.core.request import Request, Stopping
from transduce.errors import CapacityError

BUDGETS = Budgets(4, 8, 8, block_size=4, self_slabs=2, cross_slabs=3)


def refusal(request: Request, capacity: int, budgets: Budgets = BUDGETS) -> str:
    with pytest.raises(CapacityError) as caught:
        refuse_if_too_large(budgets, capacity, request)
    return str(caught.value)


@pytest.mark.parametrize(("tokens", "self_blocks", "cross_blocks"), [(0, 0, 0), (1, 2, 3), (4, 2, 3), (5, 4, 6)])
def test_blocks_of_tokens_and_rows(tokens: int, self_blocks: int, cross_blocks: int) -> None:
    assert BUDGETS.self_blocks(tokens) == self_blocks
    assert BUDGETS.cross_blocks(tokens) == cross_blocks


def test_the_last_new_token_needs_no_page() -> None:
    refuse_if_too_large(BUDGETS, 2, request("r", prompt=4, max_tokens=1))
    message = refusal(request("r", prompt=4, max_tokens=2), 2)
    assert message == (
        "the request needs 4 KV blocks (0 for its encoder input, 1 x 5 decoder tokens) and the pool has 2: "
        "lower max_tokens to 1, or give the KV cache more memory"
    )


def test_a_prompt_that_does_not_fit_cannot_be_helped_by_max_tokens() -> None:
    message = refusal(request("r", prompt=9, max_tokens=1, rows=5), 11)
    assert message == (
        "the request needs 12 KV blocks (6 for its encoder input, 1 x 9 decoder tokens) and the pool has 11: "
        "shorten the input, or give the KV cache more memory"
    )


@pytest.mark.parametrize("rows", [[], [1], [4], [1, 1], [5, 1, 3]])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("capacity", [12, 13, 20, 31])
def test_the_max_tokens_a_refusal_names_is_the_most_that_fits(rows: list[int], width: int, capacity: int) -> None:
    inputs = tuple(source(item(at, each)) for at, each in enumerate(rows))
    large = replace(request("r", prompt=2, max_tokens=99, width=width), inputs=inputs)
    message = refusal(large, capacity)
    if (named := re.search(r"lower max_tokens to (\d+)", message)) is None:
        refusal(replace(large, stopping=Stopping(1)), capacity)
        return
    most = int(named[1])
    refuse_if_too_large(BUDGETS, capacity, replace(large, stopping=Stopping(most)))
    refusal(replace(large, stopping=Stopping(most + 1)), capacity)
    if len(rows) == 1:
        assert room(BUDGETS, capacity, prompt=2, rows=rows[0], width=width) == most


def test_no_room_is_none_at_all() -> None:
    assert room(BUDGETS, capacity=2, prompt=1, rows=5, width=1) == 0
