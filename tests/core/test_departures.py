"""How requests lose their pages or leave: preemption, aborts, stop strings, failing steps."""

from dataclasses import replace

import pytest

from tests.core.requests import item, request, source
from tests.core.simulation import Simulation, encoded, simulation
from transduce.core.request import Request

# Pressure


def crowd(blocks: int, *requests: Request) -> Simulation:
    """Requests that start together and outgrow the pool."""
    sim = simulation(blocks)
    sim.add(*requests)
    sim.drain()
    assert sim.scheduler.counters.preemptions > 0
    return sim


def test_the_newest_gives_way_and_comes_back() -> None:
    sim = crowd(8, request("a", max_tokens=6), request("b", max_tokens=6))
    assert sim.scheduler.counters.preemptions == 1


def test_preempted_samples_come_back_and_find_their_input() -> None:
    sim = crowd(14, request("old", max_tokens=12), request("wide", max_tokens=4, width=3, rows=2))
    assert (sim.scheduler.counters.encoded_rows, sim.scheduler.cache.hits) == (2, 1)


def test_an_input_that_pressure_took_is_encoded_again() -> None:
    sim = crowd(6, request("a", max_tokens=6), request("b", max_tokens=3, rows=1))
    assert (sim.scheduler.counters.encoded_rows, sim.scheduler.cache.hits) == (2, 0)


def test_a_group_that_waits_for_its_encoder_can_be_preempted() -> None:
    sim = simulation(blocks=7, max_encode_tokens=1)
    waits = replace(request("waits", rows=1), inputs=(source(*(item(at) for at in range(4))),))
    sim.add(request("a", max_tokens=5), waits)
    sim.drain()
    assert sim.scheduler.counters.preemptions > 0


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    sim = simulation(blocks=4)
    sim.add(request("a", max_tokens=4), request("b", max_tokens=4))
    while not sim.scheduler.counters.preemptions:
        sim.step()
    assert (sim.scheduler.running, sim.scheduler.waiting) == (1, 1)
    sim.add(request("c"))
    sim.drain()


# Departure


def test_an_abort_frees_everything_wherever_the_request_is() -> None:
    sim = simulation(max_num_seqs=1)
    sim.add(request("running", max_tokens=9, rows=2), request("waiting"))
    sim.step()
    sim.abort("running")
    sim.abort("waiting")
    sim.abort("never heard of")
    assert not sim.scheduler.unfinished
    sim.check()


@pytest.mark.parametrize("leases", [True, False])
def test_what_is_leased_stays_until_its_request_is_aborted(leases: bool) -> None:
    sim = simulation(blocks=20)
    sim.add(replace(request("held", rows=4, content=1), leases=leases))
    sim.step()
    assert sim.scheduler.cache.leased == leases
    for number in range(9):
        sim.add(request(f"other{number}", rows=8, content=2 + number))
        sim.step()
    sim.add(request("again", rows=4, content=1))
    assert encoded(sim.step()) == (0 if leases else 4)
    sim.scheduler.abort("held")
    assert sim.scheduler.cache.leased == 0


def test_an_abort_while_the_step_runs_is_no_output() -> None:
    sim = simulation()
    sim.add(request("r", max_tokens=9, rows=2), request("other", max_tokens=2))
    sim.step(between=lambda: sim.abort("r"))
    assert sim.outputs["r", 0].tokens == []
    sim.drain()


def test_a_request_aborted_while_its_step_fails_is_not_reported() -> None:
    sim = simulation()
    sim.add(request("r"))
    sim.scheduler.plan()
    sim.scheduler.abort("r")
    assert sim.scheduler.fail("it broke") == []


def test_a_stop_string_ends_its_hypothesis_and_is_billed_so() -> None:
    sim = simulation()
    sim.add(request("r", max_tokens=9, width=2))
    for _ in range(4):
        sim.step()
    sim.finish("r", 0, 2)
    assert sim.scheduler.counters.generated_tokens == 6
    sim.scheduler.finish("r", 0, 1)
    sim.drain()
    sim.scheduler.finish("r", 1, 1)


def test_the_last_hypothesis_to_finish_ends_the_request() -> None:
    sim = simulation()
    sim.add(request("r", max_tokens=9))
    sim.step()
    sim.finish("r", 0, 1)
    assert not sim.scheduler.unfinished
    sim.check()


def test_a_round_goes_on_when_the_last_missing_hypothesis_is_finished() -> None:
    sim = simulation(max_num_batched_tokens=1)
    sim.add(request("r", max_tokens=3, width=2))
    sim.step()
    sim.step()  # the first of two has its row
    sim.finish("r", 1, 1)
    sim.drain()


def test_a_round_completed_by_finish_survives_a_failing_step() -> None:
    sim = simulation(max_num_batched_tokens=1)
    sim.add(request("r", max_tokens=3, width=2))
    for _ in range(2):
        sim.step()
    sim.finish("r", 1, 1)
    sim.step(fails=True)
    assert sim.lost == set()
    sim.drain()


def test_sequences_are_dropped_even_if_nothing_else_is_left_to_do() -> None:
    sim = simulation()
    sim.add(request("r", max_tokens=9))
    sim.step()
    sim.abort("r")
    plan = sim.step()
    assert len(plan.dropped) == 1
    assert not plan.empty
    assert sim.step().empty
    assert sim.runner.states == {}


def test_a_failed_step_takes_its_requests_and_no_others() -> None:
    sim = simulation(max_encode_tokens=1, max_num_batched_tokens=4)
    slow = replace(request("slow"), inputs=(source(item(1), item(2)),))
    sim.add(request("runs", prompt=4, max_tokens=2), slow, request("waits"))
    sim.step(fails=True)
    assert sim.lost == {"runs"}
    sim.step(fails=True)
    assert sim.lost == {"runs", "slow", "waits"}
    sim.add(replace(slow, request_id="again"))
    assert encoded(sim.step()) == 1
    sim.drain()
