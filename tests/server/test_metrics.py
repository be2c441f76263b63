"""Metrics: names and labels as dashboards know them, and values that follow what happened."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from tests.server.asgi import call
from tests.server.fakes import MODEL, FakeLLM, app
from tests.server.live import Live
from transduce.async_engine.stats import Stats

KINDS = {
    "num_requests_running": "gauge",
    "num_requests_waiting": "gauge",
    "kv_cache_usage_perc": "gauge",
    "num_preemptions": "counter",
    "prompt_tokens": "counter",
    "encoder_tokens": "counter",
    "generation_tokens": "counter",
    "encoder_cache_hits": "counter",
    "encoder_cache_queries": "counter",
    "graph_steps": "counter",
    "eager_steps": "counter",
    "engine_restarts": "counter",
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
        encoder_cache_hits=5, encoder_cache_queries=6, graph_steps=7, eager_steps=8, restarts=9,
    )  # fmt: skip
    found = scrape(served)
    assert value(found, "num_requests_running") == 3
    assert value(found, "num_requests_waiting") == 2
    assert value(found, "kv_cache_usage_perc", kind="self") == 0.25
    assert value(found, "kv_cache_usage_perc", kind="cross") == 0.5
    counters = [name for name, kind in KINDS.items() if kind == "counter" and name != "http_responses"]
    assert [value(found, f"{name}_total") for name in counters] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


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
    assert paths == {"", "/v1/models/{name:path}"}


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
