"""Metrics: names and labels as dashboards know them, and values that follow what happened."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from tests.server.asgi import call
from tests.server.fakes import MODEL, FakeLLM, app
from tests.server.live import Live, tone
from transduce.async_engine.stats import Stats

KINDS = {
    "num_requests_running": "gauge",
    "num_requests_waiting": "gauge",
    "num_realtime_sessions": "gauge",
    "kv_cache_usage_perc": "gauge",
    "num_preemptions": "counter",
    "prompt_tokens": "counter",
    "encoder_tokens": "counter",
    "generation_tokens": "counter",
    "encoder_cache_hits": "counter",
    "encoder_cache_queries": "counter",
    "prefix_cache_hits": "counter",
    "prefix_cache_queries": "counter",
    "spec_decode_num_drafts": "counter",
    "spec_decode_num_draft_tokens": "counter",
    "spec_decode_num_accepted_tokens": "counter",
    "graph_steps": "counter",
    "eager_steps": "counter",
    "engine_restarts": "counter",
    "audio_seconds": "counter",
    "http_responses": "counter",
    "time_to_first_token_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram",
    "request_queue_time_seconds": "histogram",
    "step_seconds": "histogram",
}

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def values(text: str) -> Values:
    """By the name without its prefix, and the labels but model_name."""
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("transduce:"):
                labels = dict(sample.labels)
                labels.pop("model_name")
                found[sample.name.removeprefix("transduce:"), frozenset(labels.items())] = sample.value
    return found


def value(found: Values, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def scrape(served: Any) -> Values:
    return values(call(served, "GET", "/metrics").body.decode())


def test_names_kinds_and_labels() -> None:
    served = app(served_model_name=("first", "second"))
    call(served, "GET", "/health")
    families = {
        family.name.removeprefix("transduce:"): family
        for family in text_string_to_metric_families(call(served, "GET", "/metrics").body.decode())
        if family.name.startswith("transduce:") and not family.name.endswith("_created")
    }
    assert {name: family.type for name, family in families.items()} == KINDS
    for family in families.values():
        assert family.documentation
        assert {sample.labels["model_name"] for sample in family.samples} == {"first"}


def test_every_metric_is_described() -> None:
    page = (Path(__file__).parent.parent.parent / "docs/operations.md").read_text(encoding="utf-8")
    described = dict(re.findall(r"^\| `transduce:(\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert described == {f"{name}_total" if kind == "counter" else name: kind for name, kind in KINDS.items()}


def test_the_engine_s_numbers_are_read_when_scraped() -> None:
    llm = FakeLLM()
    served = app(llm)
    llm.live, llm.waiting = 5, 2
    llm.stats = Stats(
        self_usage=0.25, cross_usage=0.5, preemptions=1, prompt_tokens=2, encoder_tokens=3, generation_tokens=4,
        encoder_cache_hits=5, encoder_cache_queries=6, prefix_cache_hits=7, prefix_cache_queries=8, drafts=9,
        drafted=10, accepted=11, graph_steps=12, eager_steps=13, restarts=14,
    )  # fmt: skip
    found = scrape(served)
    assert value(found, "num_requests_running") == 3
    assert value(found, "num_requests_waiting") == 2
    assert value(found, "kv_cache_usage_perc", kind="self") == 0.25
    assert value(found, "kv_cache_usage_perc", kind="cross") == 0.5
    own = {"audio_seconds", "http_responses"}
    counters = [name for name, kind in KINDS.items() if kind == "counter" and name not in own]
    assert [value(found, f"{name}_total") for name in counters] == [*range(1, 15)]


def test_a_request_s_times() -> None:
    """The fake's: scheduled after 0.5 s, first token after 1, finished after 3 with two more tokens."""
    served = app()
    call(served, "POST", "/v1/completions", {"model": MODEL, "prompt": "x"})
    found = scrape(served)
    for name, seconds in (
        ("request_queue_time", 0.5),
        ("time_to_first_token", 1.0),
        ("e2e_request_latency", 3.0),
        ("inter_token_latency", 1.0),
    ):
        assert value(found, f"{name}_seconds_count") == 1
        assert value(found, f"{name}_seconds_sum") == pytest.approx(seconds)
    assert value(found, "http_responses_total", path="/v1/completions", status="200") == 1


def test_steps_are_observed() -> None:
    llm = FakeLLM()
    served = app(llm)
    assert llm.on_step is not None
    for seconds in (0.0005, 0.3):
        llm.on_step(seconds)
    found = scrape(served)
    assert value(found, "step_seconds_count") == 2
    assert value(found, "step_seconds_bucket", le="0.001") == 1


def test_what_clients_ask_for_makes_no_series() -> None:
    served = app()
    for number in range(20):
        call(served, "GET", f"/nowhere/{number}")
        call(served, "GET", f"/v1/models/{number}")
    paths = {dict(labels).get("path") for name, labels in scrape(served) if name == "http_responses_total"}
    assert paths == {"other", "/v1/models/{name:path}"}


@pytest.mark.parametrize(
    ("options", "method", "path", "body", "status", "label"),
    [
        ({}, "POST", "/v1/completions", {"prompt": "x"}, 429, "/v1/completions"),
        ({"api_key": ("key",)}, "POST", "/v1/models/a", None, 401, "/v1/models/{name:path}"),
        ({"max_body_mb": 1e-5}, "POST", "/tokenize", {"prompt": "long"}, 413, "/tokenize"),
        ({}, "PUT", "/health", None, 405, "/health"),
        ({}, "GET", "/static/app.js", None, 200, "/static/app.js"),
        ({"disable_playground": True}, "GET", "/static/app.js", None, 404, "other"),
    ],
)
def test_every_response_counts_for_its_route(
    options: dict[str, Any], method: str, path: str, body: Any, status: int, label: str
) -> None:
    """Whoever gives it: most of these requests get no further than a middleware."""
    llm = FakeLLM()
    if status == 429:
        llm.live = llm.waiting = 10**6
    served = app(llm, **options)
    assert call(served, method, path, body).status == status
    assert value(scrape(served), "http_responses_total", path=label, status=str(status)) == 1


def test_a_clip_s_length_is_counted() -> None:
    served = app(FakeLLM("audio"))
    form = (
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + tone(200) + b"\r\n--x--\r\n"
    )
    headers = {"content-type": "multipart/form-data; boundary=x"}
    assert call(served, "POST", "/v1/audio/transcriptions", headers=headers, chunks=[form]).status == 200
    assert value(scrape(served), "audio_seconds_total") == pytest.approx(0.5)


def test_open_metrics_where_asked_for() -> None:
    served = app()
    plain = call(served, "GET", "/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    open_metrics = call(served, "GET", "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.body.rstrip().endswith(b"# EOF")


def test_two_apps_share_nothing() -> None:
    one, other = app(), app()
    call(one, "POST", "/v1/completions", {"model": MODEL, "prompt": "x"})
    assert value(scrape(other), "e2e_request_latency_seconds_count") == 0
    assert not [family for family in REGISTRY.collect() if "transduce" in family.name]


def test_a_real_engine_s_metrics(text: Live) -> None:
    client = text.http
    before = values(client.get("/metrics").text)
    body = {"model": "tiny", "prompt": "metrics", "max_tokens": 5, "ignore_eos": True}
    used = client.post("/v1/completions", json=body).raise_for_status().json()["usage"]
    after = values(client.get("/metrics").text)

    def grown(name: str) -> float:
        return value(after, name) - value(before, name)

    assert grown("generation_tokens_total") == used["completion_tokens"] == 5
    assert grown("prompt_tokens_total") == used["prompt_tokens_details"]["decoder_tokens"]
    assert grown("encoder_tokens_total") == used["prompt_tokens_details"]["encoder_tokens"]
    assert grown("step_seconds_count") == grown("graph_steps_total") + grown("eager_steps_total") > 0
    assert grown("time_to_first_token_seconds_count") == grown("e2e_request_latency_seconds_count") == 1
    assert value(after, "num_requests_running") == value(after, "num_requests_waiting") == 0
    assert value(after, "kv_cache_usage_perc", kind="self") == 0
