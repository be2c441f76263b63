"""What Prometheus scrapes: the engine's gauges and counters as they are, and histograms of requests and steps.

Owns names, labels and buckets, and a registry per app. Knows no HTTP: whoever sees a request end says so.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from transduce.async_engine.llm import AsyncLLM
from transduce.frontend.outputs import RequestMetrics

PREFIX = "transduce:"
LABEL = "model_name"

# A step on a CPU takes from a millisecond, of a small model, to seconds where a long source is encoded.
STEP = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
REQUEST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)

COUNTERS = {
    "num_preemptions": ("preemptions", "Requests that gave up their pages for older ones."),
    "prompt_tokens": ("prompt_tokens", "Decoder prompt tokens."),
    "encoder_tokens": ("encoder_tokens", "Rows that the encoder made: tokens, or frames of audio."),
    "generation_tokens": ("generation_tokens", "Tokens generated."),
    "encoder_cache_hits": ("encoder_cache_hits", "Encoder inputs whose output was in the cache."),
    "encoder_cache_queries": ("encoder_cache_queries", "Encoder inputs looked up in the cache."),
    "prefix_cache_hits": ("prefix_cache_hits", "Decoder prompt tokens whose KV was in the cache."),
    "prefix_cache_queries": ("prefix_cache_queries", "Decoder prompt tokens looked up in the cache."),
    "spec_decode_num_drafts": ("drafts", "Drafts of next tokens that were verified."),
    "spec_decode_num_draft_tokens": ("drafted", "Tokens of those drafts."),
    "spec_decode_num_accepted_tokens": ("accepted", "Tokens of those drafts that were right."),
    "graph_steps": ("graph_steps", "Steps whose forward was replayed from a tape."),
    "eager_steps": ("eager_steps", "Steps whose forward ran as it is."),
    "engine_restarts": ("restarts", "Times that the engine process was started again."),
}
"""By name: the field of Stats, and what it counts."""


class Metrics:
    """The metrics of one served model. `registry` is what is scraped."""

    def __init__(self, model_name: str, llm: AsyncLLM) -> None:
        self.registry = CollectorRegistry()
        self._name = model_name
        self.registry.register(_Engine(llm, model_name))
        ProcessCollector(registry=self.registry)
        self._first_token = self._histogram("time_to_first_token_seconds", "From arrival to the first token.", REQUEST)
        self._inter_token = self._histogram(
            "inter_token_latency_seconds", "Mean time between tokens of a request.", STEP
        )
        self._total = self._histogram("e2e_request_latency_seconds", "From arrival to the last token.", REQUEST)
        self._queue = self._histogram("request_queue_time_seconds", "From arrival to the first step.", REQUEST)
        self.step = self._histogram("step_seconds", "One step of the engine.", STEP).observe
        self._audio = Counter(
            f"{PREFIX}audio_seconds", "Seconds of audio transcribed.", (LABEL,), registry=self.registry
        )
        self._audio.labels(self._name)  # 0 is told, too
        sockets = Gauge(
            f"{PREFIX}num_realtime_sessions", "Open sessions of live transcription.", (LABEL,), registry=self.registry
        )
        self.listening = sockets.labels(self._name).track_inprogress
        """A context in which a session of live transcription is open."""
        self._responses = Counter(
            f"{PREFIX}http_responses",
            "HTTP responses, by the route's path and the status.",
            (LABEL, "path", "status"),
            registry=self.registry,
        )

    def finished(self, times: RequestMetrics, tokens: int) -> None:
        """A request came to its end. tokens: of its longest answer."""
        for histogram, end in (
            (self._queue, times.first_scheduled_time),
            (self._first_token, times.first_token_time),
            (self._total, times.finished_time),
        ):
            if end is not None:
                histogram.observe(max(0.0, end - times.arrival_time))
        if tokens > 1 and times.first_token_time is not None and times.finished_time is not None:
            self._inter_token.observe((times.finished_time - times.first_token_time) / (tokens - 1))

    def heard(self, seconds: float) -> None:
        """A clip was transcribed."""
        self._audio.labels(self._name).inc(seconds)

    def responded(self, path: str, status: int) -> None:
        """A response was sent. path: the route's template, or one word for all others: labels stay few."""
        self._responses.labels(self._name, path, str(status)).inc()

    def _histogram(self, name: str, text: str, buckets: Iterable[float]) -> Histogram:
        histogram = Histogram(f"{PREFIX}{name}", text, (LABEL,), registry=self.registry, buckets=tuple(buckets))
        child: Histogram = histogram.labels(self._name)
        return child


@dataclass(frozen=True, slots=True, eq=False)
class _Engine(Collector):
    """Reads the engine's Stats when scraped."""

    llm: AsyncLLM
    model_name: str

    def collect(self) -> Iterator[Metric]:
        stats = self.llm.stats
        running, waiting = self.llm.live - self.llm.waiting, self.llm.waiting
        usage = {"self": stats.self_usage, "cross": stats.cross_usage}
        yield self._gauge("num_requests_running", "Requests that the engine works on.", {"": running})
        yield self._gauge("num_requests_waiting", "Requests that wait for their first step.", {"": waiting})
        yield self._gauge("kv_cache_usage_perc", "Used share of the KV pool, of 1, by kind.", usage, "kind")
        for name, (field, text) in COUNTERS.items():
            counter = CounterMetricFamily(f"{PREFIX}{name}", text, labels=(LABEL,))
            counter.add_metric((self.model_name,), getattr(stats, field))
            yield counter

    def _gauge(self, name: str, text: str, values: Mapping[str, float], label: str = "") -> GaugeMetricFamily:
        """A gauge with a value for each value of a label of its own, or of none."""
        gauge = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=(LABEL, label) if label else (LABEL,))
        for each, value in values.items():
            gauge.add_metric((self.model_name, each) if label else (self.model_name,), value)
        return gauge
