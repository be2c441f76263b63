"""Traces: spans of requests and of prompts in them, joined to the client's trace, sent by OTLP."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.server.asgi import call
from tests.server.fakes import MODEL, app
from transduce.errors import ConfigError
from transduce.server.tracing import Tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Its URL, and the spans it was sent."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans(collector: tuple[str, list[Any]]) -> None:
    endpoint, spans = collector
    served = app(otlp_traces_endpoint=endpoint)
    for path in ("/health", "/ready", "/metrics"):
        call(served, "GET", path)
    body = {"model": MODEL, "prompt": ["x", "y"]}
    call(served, "POST", "/v1/completions", body, PARENT | {"x-request-id": "mine"})
    served.state.service.tracing.shutdown()

    assert {span.trace_id.hex() for span in spans} == {TRACE}
    (outer,) = [span for span in spans if span.name != "llm_request"]
    inner = [span for span in spans if span.name == "llm_request"]
    assert "/v1/completions" in outer.name
    assert [span.parent_span_id for span in inner] == [outer.span_id] * 2
    assert (inner[0].start_time_unix_nano, inner[0].end_time_unix_nano) == (100 * 10**9, 103 * 10**9)
    assert [event.name for event in inner[0].events] == ["scheduled", "first_token"]
    attributes = {each.key: each.value for each in inner[0].attributes}
    assert attributes["gen_ai.request.id"].string_value == "mine"
    assert attributes["gen_ai.usage.completion_tokens"].int_value == 3


def test_nothing_is_global() -> None:
    before = trace.get_tracer_provider()
    app(otlp_traces_endpoint="http://127.0.0.1:9/v1/traces").state.service.tracing.shutdown()
    assert trace.get_tracer_provider() is before


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'transduce\[otel\]'"):
        Tracing("http://127.0.0.1:9/v1/traces")
    Tracing(None).shutdown()
