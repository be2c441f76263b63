"""Stats: how the engine fares, in numbers. Knows no process and no message."""

from dataclasses import dataclass, fields, replace

from transduce.engine import Engine

GAUGES = frozenset({"running", "waiting", "self_usage", "cross_usage"})
"""What is so now; the other fields count what has happened so far."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Gauges of now, and counts since the first start, restarts included.

    running, waiting: requests that hold pages, and that do not. self_usage, cross_usage: share, of 1, of the KV pool
    that decoder tokens take, and encoder inputs in use. encoder_tokens: rows encoded. drafts: verified; drafted,
    accepted: their tokens, and those that were right. graph_steps, eager_steps: steps whose decoder forward was
    replayed, and ran as it is. step_seconds: of all steps together.
    """

    running: int = 0
    waiting: int = 0
    self_usage: float = 0.0
    cross_usage: float = 0.0
    preemptions: int = 0
    prompt_tokens: int = 0
    encoder_tokens: int = 0
    generation_tokens: int = 0
    encoder_cache_hits: int = 0
    encoder_cache_queries: int = 0
    prefix_cache_hits: int = 0
    prefix_cache_queries: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    graph_steps: int = 0
    eager_steps: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    restarts: int = 0

    def after(self, earlier: "Stats") -> "Stats":
        """These, with the counts of an earlier process added."""
        counts = [field.name for field in fields(self) if field.name not in GAUGES]
        return replace(self, **{name: getattr(self, name) + getattr(earlier, name) for name in counts})

    def ended(self) -> "Stats":
        """The counts of a process that is gone, and one restart more."""
        return Stats(restarts=1).after(self)


def stats_of(engine: Engine, steps: int, step_seconds: float) -> Stats:
    """An engine's Stats after so many steps that took so long."""
    scheduler, graphs = engine.scheduler, engine.runner.graphs
    counters = scheduler.counters
    return Stats(
        running=scheduler.running,
        waiting=scheduler.waiting,
        self_usage=scheduler.self_usage,
        cross_usage=scheduler.cache.usage,
        preemptions=counters.preemptions,
        prompt_tokens=counters.prompt_tokens,
        encoder_tokens=counters.encoded_rows,
        generation_tokens=counters.generated_tokens,
        encoder_cache_hits=scheduler.cache.hits,
        encoder_cache_queries=scheduler.cache.queries,
        prefix_cache_hits=scheduler.prefixes.hits,
        prefix_cache_queries=scheduler.prefixes.queries,
        drafts=counters.drafts,
        drafted=counters.drafted,
        accepted=counters.accepted,
        graph_steps=graphs.replays,
        eager_steps=graphs.eager,
        steps=steps,
        step_seconds=step_seconds,
    )
