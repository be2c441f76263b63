"""OpenTelemetry traces: a span per HTTP request, and one in it per prompt with the engine's own times.

Needs the extra `otel`, and imports it only where traces are asked for. Sets no global tracer.
"""

from typing import Any

from fastapi import FastAPI

from transduce.errors import ConfigError
from transduce.frontend.outputs import RequestOutput

NANOSECONDS = 1_000_000_000
UNTRACED = "/health,/ready,/metrics"


class Tracing:
    """Sends spans to an OTLP collector by HTTP; does nothing without an endpoint.

    endpoint: such as http://localhost:4318/v1/traces. Raises ConfigError where the extra is not installed.
    """

    def __init__(self, endpoint: str | None) -> None:
        self.provider: Any = None if endpoint is None else _provider(endpoint)

    def install(self, app: FastAPI) -> None:
        """Trace the app's requests, as part of the trace that a client's traceparent names."""
        if self.provider is not None:
            from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware

            app.add_middleware(
                OpenTelemetryMiddleware,
                tracer_provider=self.provider,
                excluded_urls=UNTRACED,
                exclude_spans=["receive", "send"],
            )

    def finished(self, request_id: str, output: RequestOutput) -> None:
        """A prompt of the current request has its answer."""
        times = output.metrics
        if self.provider is None or times.finished_time is None:
            return
        span = self.provider.get_tracer("transduce").start_span("llm_request", start_time=_stamp(times.arrival_time))
        span.set_attribute("gen_ai.request.id", request_id)
        span.set_attribute("gen_ai.usage.completion_tokens", sum(len(answer.token_ids) for answer in output.outputs))
        for name, at in (("scheduled", times.first_scheduled_time), ("first_token", times.first_token_time)):
            if at is not None:
                span.add_event(name, timestamp=_stamp(at))
        span.end(end_time=_stamp(times.finished_time))

    def shutdown(self) -> None:
        """Send what is not sent yet."""
        if self.provider is not None:
            self.provider.shutdown()


def _provider(endpoint: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"otlp_traces_endpoint={endpoint!r}: {error.name} is not installed; pip install 'transduce[otel]'"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "transduce"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider


def _stamp(seconds: float) -> int:
    return int(seconds * NANOSECONDS)
