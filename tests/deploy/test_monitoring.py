"""The dashboard, the alert rules and the scrape configuration: in form, and against what /metrics has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from pydantic import BaseModel, ConfigDict, Field

from transduce import AsyncLLM
from transduce.server.metrics import Metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
SCRAPE = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())

FROM_PROMETHEUS = {"job", "instance"}
DURATION = r"^\d+[smhd]$"


class Strict(BaseModel):
    """A record of Prometheus' configuration: no other fields."""

    model_config = ConfigDict(extra="forbid")


class Rule(Strict):
    alert: str = Field(pattern=r"^Transduce[A-Z]\w+$")
    expr: str
    hold: str = Field(default="0s", alias="for", pattern=DURATION)
    labels: dict[str, str]
    annotations: dict[str, str]


class Group(Strict):
    name: str
    rules: list[Rule] = Field(min_length=1)


class RuleFile(Strict):
    groups: list[Group] = Field(min_length=1)


class Relabel(Strict):
    source_labels: list[str] = []
    regex: str = "(.*)"
    action: str = Field(default="replace", pattern="^(replace|keep|drop)$")
    target_label: str | None = None
    replacement: str | None = None


class Static(Strict):
    targets: list[str]


class Discovery(Strict):
    role: str = Field(pattern="^(node|service|pod|endpoints|endpointslice|ingress)$")


class Job(Strict):
    job_name: str
    scrape_interval: str = Field(pattern=DURATION)
    static_configs: list[Static] = []
    kubernetes_sd_configs: list[Discovery] = []
    relabel_configs: list[Relabel] = []


class ScrapeFile(Strict):
    rule_files: list[str]
    scrape_configs: list[Job]


def panels() -> list[Any]:
    return [pytest.param(panel, id=panel["title"]) for panel in DASHBOARD["panels"]]


def queries() -> list[Any]:
    """Every PromQL query, by where it stands."""
    shown = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
    alarming = [(rule["alert"], rule["expr"]) for group in RULES["groups"] for rule in group["rules"]]
    return [pytest.param(query, id=where) for where, query in shown + alarming]


def parsed(query: str) -> promql_parser.Expr:
    return promql_parser.parse(query.replace("$__rate_interval", "1m"))


def nodes(query: str) -> list[promql_parser.Expr]:
    """Every node of a query's tree."""
    found: list[promql_parser.Expr] = []

    def note(node: promql_parser.Expr) -> bool:
        found.append(node)
        return True

    promql_parser.walk(parsed(query), note)
    return found


def selectors(query: str) -> list[promql_parser.VectorSelector]:
    return [node for node in nodes(query) if isinstance(node, promql_parser.VectorSelector)]


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """The labels of every series that a server has, by its name; `up` is Prometheus' own."""
    metrics = Metrics("model", AsyncLLM("model"))
    metrics.responded("/v1/completions", 200)
    samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
    return {sample.name: FROM_PROMETHEUS | set(sample.labels) for sample in samples} | {"up": FROM_PROMETHEUS}


@pytest.mark.parametrize("query", queries())
def test_queries_name_series_and_labels_that_exist(query: str, exposed: dict[str, set[str]]) -> None:
    assert selectors(query)
    for selector in selectors(query):
        assert selector.name in exposed
        assert {matcher.name for matcher in selector.matchers.matchers} <= exposed[selector.name]


@pytest.mark.parametrize("query", queries())
def test_queries_group_by_labels_that_exist(query: str, exposed: dict[str, set[str]]) -> None:
    there = set.intersection(*(exposed[str(selector.name)] for selector in selectors(query)))
    for node in nodes(query):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            assert set(node.modifier.labels) <= there
        if isinstance(node, promql_parser.BinaryExpr) and node.modifier and node.modifier.matching:
            assert set(node.modifier.matching.labels) <= there


def labels(query: str, exposed: dict[str, set[str]]) -> set[str]:
    """The labels of the query's result."""
    kept = [
        set(node.modifier.labels)
        for node in nodes(query)
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier
    ]
    return set.intersection(*kept, *(exposed[str(selector.name)] for selector in selectors(query)))


def test_texts_name_labels_that_their_queries_have(exposed: dict[str, set[str]]) -> None:
    legends = [
        (target["expr"], target["legendFormat"], r"{{(\w+)}}")
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ]
    alerts = [
        (rule["expr"], json.dumps(rule["annotations"]), r"\$labels\.(\w+)")
        for group in RULES["groups"]
        for rule in group["rules"]
    ]
    named = {query: set(re.findall(pattern, text)) for query, text, pattern in legends + alerts}
    assert len(set().union(*named.values())) > 3
    for query, names in named.items():
        assert names <= labels(query, exposed)


@pytest.mark.parametrize("query", queries())
def test_counters_are_read_as_rates(query: str) -> None:
    within = {str(node.vector_selector) for node in nodes(query) if isinstance(node, promql_parser.MatrixSelector)}
    for selector in selectors(query):
        counted = str(selector.name).endswith(("_total", "_bucket", "_count", "_sum"))
        assert counted == (str(selector) in within)


def test_every_metric_of_the_engine_is_shown(exposed: dict[str, set[str]]) -> None:
    shown = {selector.name for each in queries() for selector in selectors(each.values[0])}
    own = {
        name for name in exposed if name.startswith("transduce:") and not name.endswith(("_sum", "_count", "_created"))
    }
    assert own <= shown


def test_grafana_knows_every_field_of_the_dashboard() -> None:
    """Read into Grafana's own classes and written again, nothing is lost."""
    register_default_plugins()
    kept = json.loads(json.dumps(Dashboard.from_json(DASHBOARD), cls=JSONEncoder))
    assert list(lost(DASHBOARD, kept)) == []


def lost(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Where `after` lacks or changes something of `before`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after.get(key), f"{at}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{at}/{index}")
    elif before != after:
        yield at


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("panel", panels())
def test_panels_say_what_they_show(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)
    variables = {f"${{{variable['name']}}}" for variable in DASHBOARD["templating"]["list"]}
    assert {
        source["uid"] for source in (panel["datasource"], *[each["datasource"] for each in panel["targets"]])
    } <= variables


def test_alert_rules_are_well_formed() -> None:
    rules = [rule for group in RuleFile.model_validate(RULES).groups for rule in group.rules]
    assert len({rule.alert for rule in rules}) == len(rules)
    for rule in rules:
        assert set(rule.labels) == {"severity"}
        assert rule.labels["severity"] in {"critical", "warning", "info"}
        assert set(rule.annotations) == {"summary", "description"}


def test_scrape_configuration_is_well_formed() -> None:
    scrape = ScrapeFile.model_validate(SCRAPE)
    for name in scrape.rule_files:
        assert (DEPLOY / "prometheus" / name).exists()
    for job in scrape.scrape_configs:
        assert bool(job.static_configs) != bool(job.kubernetes_sd_configs)
    static, discovered = scrape.scrape_configs
    assert static.job_name == "transduce"
    assert discovered.relabel_configs[-1].target_label == "job"
    assert discovered.relabel_configs[-1].replacement == "transduce"
