"""Stats over several processes."""

from transduce.async_engine.stats import Stats

NOW = Stats(running=3, self_usage=0.5, steps=4, step_seconds=0.25, generation_tokens=7)


def test_counts_outlive_a_process_and_gauges_do_not() -> None:
    ended = NOW.ended()
    assert ended == Stats(steps=4, step_seconds=0.25, generation_tokens=7, restarts=1)
    assert NOW.after(ended) == Stats(3, 0, 0.5, steps=8, step_seconds=0.5, generation_tokens=14, restarts=1)
    assert NOW.after(ended).ended().restarts == 2
