"""Decoder prefixes: what is found again, and what only looks like it."""

from dataclasses import replace

import pytest

from tests.core.requests import request
from tests.core.simulation import Simulation, lengths, simulation
from transduce.core import search
from transduce.core.blocks import BlockTable
from transduce.core.request import Attention, Request, RuleSpec, Scored, Span, Stopping
from transduce.core.sequence import Group, Sequence


def after(first: Request, second: Request, sim: Simulation) -> list[int]:
    """The chunks of the second request's first step, when the first is done."""
    sim.add(first)
    while sim.scheduler.unfinished:
        sim.step()
    sim.add(second)
    plan = sim.step()
    sim.drain()
    return lengths(plan)


SAME = request("b", prompt=9, rows=3, content=1, max_tokens=2)


@pytest.mark.parametrize(
    ("second", "computed"),
    [
        (SAME, 1),
        (replace(SAME, prompt=(*SAME.prompt, 7, 7)), 3),
        (replace(SAME, prompt=(*SAME.prompt[:5], 7, *SAME.prompt[6:])), 5),
        (replace(SAME, prompt=SAME.prompt[:4]), 4),
        (request("b", prompt=9, rows=3, content=2, max_tokens=2), 9),
        (replace(SAME, spans=(Span(0, 0, 2),)), 9),
        (replace(SAME, spans=(Span(6, 0, 3),)), 9),
        (replace(SAME, scored=Scored(6)), 5),
        (replace(SAME, scored=Scored(6, targets=(3,))), 5),
        (replace(SAME, scored=Scored(6, attention=Attention(((0, 0),), 3)), stopping=Stopping(0)), 8),
        (replace(SAME, rules=(RuleSpec("some rule"),)), 1),
    ],
)
def test_the_same_tokens_that_see_the_same_are_found(second: Request, computed: int) -> None:
    """In blocks of 4 tokens; the last token is always computed, for its row is read."""
    assert after(replace(SAME, request_id="a"), second, simulation(block_size=4)) == [computed]


@pytest.mark.parametrize("shown", [0, 4])
def test_what_the_rules_were_not_shown_is_computed(shown: int) -> None:
    """Of a request that lost its pages, and whose prompt others have computed since."""
    sim = simulation(block_size=4)
    sim.add(replace(SAME, request_id="a"))
    while sim.scheduler.unfinished:
        sim.step()
    sequence = Sequence(9, 0, list(SAME.prompt), BlockTable(sim.pool, 4, 1), shown=shown)
    sim.scheduler.prefixes.reuse(Group(SAME, search.make(SAME), 9, [sequence], started=True))
    assert sequence.computed == shown


def test_answers_are_found_as_well() -> None:
    sim = simulation(block_size=4)
    first = request("a", prompt=5, max_tokens=8)
    sim.add(first)
    sim.drain()
    longer = replace(first, request_id="b", prompt=(*first.prompt, *sim.outputs["a", 0].tokens, 7))
    sim.add(longer)
    assert lengths(sim.step()) == [2]
    sim.drain()
    assert (sim.scheduler.prefixes.queries, sim.scheduler.prefixes.hits) == (5 + 14, 12)


def test_pages_that_are_needed_are_taken() -> None:
    """Of the kept blocks the deepest goes first: without it the others can still be used."""
    sim = simulation(blocks=8, block_size=4)
    first, other = replace(SAME, request_id="a", inputs=(), spans=()), request("c", prompt=3, max_tokens=24)
    sim.add(first)
    while sim.scheduler.unfinished:
        sim.step()
    sim.add(other)
    while sim.scheduler.unfinished:
        sim.step()
    sim.add(replace(first, request_id="b"))
    assert lengths(sim.step()) == [5]
    sim.drain()
