"""The scheduler, one promise at a time: steps and admission; the Simulation checks all the others on the way."""

from dataclasses import replace

import pytest

from tests.core.fake_runner import FORBIDS
from tests.core.requests import item, request, source
from tests.core.simulation import encoded, lengths, simulation
from transduce.core.blocks import IDLE_SHARE
from transduce.core.request import Attention, RuleSpec, Scored
from transduce.errors import CapacityError, EngineError, RequestError, TransduceError

# Steps


def test_a_request_is_encoded_and_starts_in_one_step() -> None:
    sim = simulation()
    sim.add(request("r", prompt=3, max_tokens=2, rows=4))
    plan = sim.step()
    assert (encoded(plan), lengths(plan)) == (4, [3])
    plan = sim.step()
    assert (encoded(plan), lengths(plan)) == (0, [1])
    assert not sim.scheduler.unfinished
    sim.check()


def test_a_long_prompt_comes_in_chunks() -> None:
    sim = simulation(max_num_batched_tokens=4)
    sim.add(request("r", prompt=10))
    plans = [sim.step() for _ in range(3)]
    assert [lengths(plan) for plan in plans] == [[4], [4], [2]]
    assert [len(chunk.reads) for plan in plans for chunk in plan.chunks] == [0, 0, 1]
    sim.check()


def test_one_token_goes_before_a_long_prompt() -> None:
    sim = simulation(max_num_batched_tokens=4, max_encode_tokens=1)
    slow = (source(item(1), item(2)),)
    sim.add(replace(request("long", prompt=12), inputs=slow), request("short", max_tokens=9))
    assert [lengths(sim.step()) for _ in range(4)] == [[1], [4], [1, 3], [1, 3]]
    sim.drain()


def test_a_request_waits_for_all_its_items() -> None:
    sim = simulation(max_encode_tokens=2)
    asked = request("r", rows=1)
    sim.add(replace(asked, inputs=(source(item(1, 2), item(2, 2)), source(item(3, 1)))))
    plans = [sim.step() for _ in range(3)]
    assert [(encoded(plan), lengths(plan)) for plan in plans] == [(2, []), (2, []), (1, [1])]
    sim.check()


def test_requests_with_equal_inputs_share_one_encoding() -> None:
    sim = simulation()
    sim.add(*(request(f"r{i}", rows=4, content=1) for i in range(3)))
    sim.step()
    sim.add(request("late", rows=4, content=1))
    assert encoded(sim.step()) == 0
    assert (sim.scheduler.counters.encoded_rows, sim.scheduler.cache.hits) == (4, 3)
    sim.check()


def test_a_pending_input_can_be_joined_between_its_items() -> None:
    sim = simulation(max_encode_tokens=1)
    both = (source(item(1), item(2)),)
    sim.add(replace(request("first"), inputs=both))
    sim.step()
    sim.add(replace(request("second"), inputs=both))
    assert lengths(sim.step()) == [1, 1]
    assert sim.scheduler.counters.encoded_rows == 2
    sim.check()


def test_samples_fork_and_copy_a_half_full_block_but_once_each() -> None:
    sim = simulation(block_size=2)
    sim.add(request("r", prompt=3, max_tokens=3, width=3, rows=2))
    first, second = sim.step(), sim.step()
    assert [chunk.reads[0].samples for chunk in first.chunks] == [(0, 1, 2)]
    assert len(second.forks) == 2
    assert len(second.copies) == 2  # the last one writes where it is
    assert sim.step().copies == []
    sim.check()


def test_a_group_wider_than_a_step_spreads_over_steps() -> None:
    sim = simulation(max_num_batched_tokens=2)
    sim.add(request("r", max_tokens=3, width=5))
    assert [lengths(sim.step()) for _ in range(4)] == [[1], [1, 1], [1, 1], [1]]
    sim.drain()


@pytest.mark.parametrize(
    ("fault", "said"),
    [(RequestError, "rules (forbids) forbid every one"), (EngineError, "the model computed NaN")],
)
def test_a_request_that_no_token_can_follow_ends_with_an_error(fault: type[TransduceError], said: str) -> None:
    sim = simulation()
    rules = (RuleSpec(FORBIDS, (1,)),)
    sim.add(replace(request("r", width=2), rules=rules), request("other"))
    plan = sim.scheduler.plan()
    result = sim.runner.run(plan)
    if fault is EngineError:
        result.choices = {at: replace(choice, forbidden=False) for at, choice in result.choices.items()}
    output, other = sim.scheduler.commit(result)
    assert output.finished
    assert type(output.error) is fault
    assert said in str(output.error)
    assert [(d.index, d.tokens, d.finish_reason) for d in output.deltas] == [(0, [], "error"), (1, [], "error")]
    assert other.error is None


# Admission


def test_requests_wait_for_a_place() -> None:
    sim = simulation(max_num_seqs=3)
    sim.add(request("a", max_tokens=3, width=2), request("b", max_tokens=2, width=2), request("c"))
    sim.step()
    assert (sim.scheduler.running, sim.scheduler.waiting) == (1, 2)
    assert sim.scheduler.admitted == ["a"]
    sim.step()
    assert sim.scheduler.admitted == []
    sim.drain()


def test_requests_wait_for_the_encode_budget() -> None:
    sim = simulation(max_encode_tokens=4)
    sim.add(request("a", rows=3), request("b", rows=2))
    assert encoded(sim.step()) == 3
    assert sim.pool.capacity - sim.pool.free == 3  # the one that waits holds no pages
    assert encoded(sim.step()) == 2
    sim.check()


def test_admission_leaves_a_spare_block_per_running_hypothesis() -> None:
    sim = simulation(blocks=9)
    sim.add(request("wide", max_tokens=3, width=3))
    sim.step()
    sim.add(request("next", prompt=3))
    sim.step()
    assert (sim.pool.free, sim.scheduler.waiting) == (5, 1)  # the next step takes three of them
    sim.drain()
    assert sim.scheduler.counters.preemptions == 0


def test_admission_reserves_the_whole_prompt() -> None:
    sim = simulation(blocks=9, max_num_batched_tokens=2)
    sim.add(request("r", prompt=6))
    assert lengths(sim.step()) == [2]
    assert sim.pool.free == 3
    sim.drain()


def test_one_that_does_not_fit_stops_those_behind_it() -> None:
    sim = simulation(blocks=8)
    sim.add(request("a", prompt=4, max_tokens=2), request("large", prompt=6), request("small"))
    sim.step()
    assert (sim.scheduler.running, sim.scheduler.waiting) == (1, 2)
    sim.drain()


def test_idle_encoder_entries_make_room() -> None:
    sim = simulation(blocks=4)
    sim.add(request("a", rows=2))
    sim.step()
    assert len(sim.scheduler.cache) == 1
    sim.add(request("b", rows=3))
    sim.step()
    assert sim.scheduler.cache.find(request("a", rows=2).inputs[0].key) is None
    sim.check()


def test_what_a_request_will_use_is_not_evicted_for_it() -> None:
    sim = simulation(blocks=2 * IDLE_SHARE)
    sim.add(request("a", rows=1, content=1))
    sim.step()
    sim.add(request("b", rows=1, content=2))
    sim.step()
    sim.add(request("c", rows=1, content=1, prompt=2 * IDLE_SHARE - 1))
    assert encoded(sim.step()) == 0
    assert len(sim.scheduler.cache) == 1
    sim.check()


@pytest.mark.parametrize("files", [1, 4, 16])
@pytest.mark.parametrize("full", [False, True])
def test_a_clip_waits_for_what_runs_and_for_no_window_that_waits(files: int, full: bool) -> None:
    """A step encodes one window, so that there are free places until as many steps have been made."""
    sim = simulation(1000, max_num_seqs=32, max_encode_tokens=4)
    sim.add(*(request(f"{file} {n}", 1, 40, rows=4, owner=f"file {file}") for n in range(40) for file in range(files)))
    while sim.scheduler.running < (32 if full else 20):
        sim.step()
    sim.add(request("clip", rows=4, owner="clip"))
    plan = sim.step()
    while not sim.scheduler.admitted:
        plan = sim.step()
    assert sim.scheduler.admitted == ["clip"]
    assert encoded(plan) == 4
    assert sim.outputs["clip", 0].reason == "length"
    sim.drain()


def test_windows_of_a_file_let_the_tokens_of_a_clip_go_first() -> None:
    sim = simulation(1000, max_num_seqs=32, max_encode_tokens=4)
    sim.add(*(request(f"window {n}", 1, 40, rows=4, owner="file") for n in range(30)))
    for _ in range(8):
        assert encoded(sim.step()) == 4
    sim.add(request("clip", 1, 9, rows=4, owner="clip"))
    assert [encoded(sim.step()) for _ in range(9)] == [4, 0, 0, 4, 0, 0, 4, 0, 0]
    assert sim.outputs["clip", 0].reason == "length"
    assert [encoded(sim.step()) for _ in range(3)] == [4, 4, 4]
    sim.drain()


def test_many_prompts_of_one_do_not_stand_before_one_of_another() -> None:
    sim = simulation(1000, max_num_seqs=4)
    sim.add(*(request(f"prompt {n}", max_tokens=1 + n % 3, owner="many") for n in range(100)))
    sim.step()
    sim.add(request("single", owner="one"), request("next", owner="one"))
    sim.step()
    assert sim.outputs["single", 0].reason == "length"
    sim.drain()


@pytest.mark.parametrize(("priority", "preemptions"), [(0, 1), (1, 0)])
def test_the_last_of_less_urgent_ones_gives_its_place_to_one_that_waits(priority: int, preemptions: int) -> None:
    sim = simulation(max_num_seqs=2)
    sim.add(*(request(name, max_tokens=5, rows=2, priority=1) for name in ("older", "newer")))
    sim.step()
    sim.add(request("urgent", rows=2, priority=priority))
    sim.step()
    assert sim.scheduler.counters.preemptions == preemptions
    assert len(sim.outputs["older", 0].tokens) == 2
    assert len(sim.outputs["newer", 0].tokens) == 2 - preemptions
    assert len(sim.outputs["urgent", 0].tokens) == preemptions
    sim.drain()
    assert sim.scheduler.counters.encoded_rows == 6, "the source was encoded again"


def test_less_urgent_ones_give_up_pages_to_one_that_waits() -> None:
    sim = simulation(blocks=8)
    sim.add(request("archive", prompt=4, max_tokens=5, priority=1), request("running", priority=-1, max_tokens=4))
    sim.step()
    sim.add(request("urgent", prompt=5))
    assert len(sim.step().chunks) == 2
    assert sim.outputs["urgent", 0].reason == "length"
    assert len(sim.outputs["archive", 0].tokens) == 1
    sim.drain()


def test_nobody_gives_way_to_one_that_the_step_cannot_take() -> None:
    sim = simulation(max_num_seqs=1, max_num_batched_tokens=1)
    sim.add(request("archive", max_tokens=3, priority=1))
    sim.step()
    sim.add(request("urgent"))
    sim.step()
    assert sim.scheduler.counters.preemptions == 0
    sim.drain()


def test_memory_is_taken_from_the_least_urgent_though_it_is_older() -> None:
    sim = simulation(blocks=6)
    sim.add(request("archive", max_tokens=6, priority=1), request("live", max_tokens=6))
    while not sim.scheduler.counters.preemptions:
        sim.step()
    assert [group.request.request_id for group in sim.scheduler._running] == ["live"]
    sim.drain()


def test_what_can_never_fit_is_refused_on_arrival() -> None:
    sim = simulation(blocks=3)
    with pytest.raises(CapacityError, match="lower max_tokens to 2"):
        sim.add(request("r", prompt=2, max_tokens=3))
    assert not sim.scheduler.unfinished
    assert sim.scheduler.counters.prompt_tokens == 0


def test_an_id_in_use_is_our_bug() -> None:
    sim = simulation()
    sim.add(request("r"))
    with pytest.raises(AssertionError, match="request id 'r' is in use"):
        sim.add(request("r"))


def test_a_plan_must_be_committed() -> None:
    sim = simulation()
    sim.add(request("r"))
    sim.scheduler.plan()
    with pytest.raises(AssertionError, match="neither committed nor failed"):
        sim.scheduler.plan()


def test_attention_is_told_once_though_a_prompt_is_computed_again() -> None:
    sim = simulation(blocks=14, max_num_batched_tokens=3)
    sim.add(request("older", max_tokens=9))
    sim.step()
    scored = Scored(1, attention=Attention(((0, 0), (1, 0)), 3))
    sim.add(replace(request("asked", prompt=10, max_tokens=0), scored=scored))
    while not sim.scheduler.counters.preemptions:
        sim.step()
    assert sum(part.shape[1] for part in sim.weights["asked"]) > 0
    sim.drain()
