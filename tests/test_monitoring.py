"""Dashboard and alert rules: they use metrics and labels that our parts have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from moorage.node.metrics import Metrics
from moorage.scheduler import SchedulerMetrics
from moorage.wire.metrics import Counter, Gauge, Histogram

_MONITORING = Path(__file__).parents[1] / "monitoring"
_ALERTS = yaml.safe_load((_MONITORING / "prometheus-alerts.yaml").read_text())
_DASHBOARD = json.loads((_MONITORING / "grafana-runtimes.json").read_text())
# Added by Prometheus: the scraped process, and the bound of a histogram's bucket.
_ADDED = {"instance", "job", "le"}


def _expressions() -> list[str]:
    rules = [rule["expr"] for group in _ALERTS["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in _DASHBOARD["panels"] for target in panel["targets"]]
    return rules + panels


def _labels_by_metric() -> dict[str, set[str]]:
    families = [*vars(Metrics()).values(), *SchedulerMetrics("s").families()]
    return {
        family.name: set(family._labels)
        for family in families
        if isinstance(family, Counter | Gauge | Histogram)
    }


@pytest.mark.parametrize("expression", _expressions())
def test_an_expression_uses_metrics_and_labels_that_exist(expression: str) -> None:
    known = _labels_by_metric()
    names = re.findall(r"\b(?:kubelet|scheduler)_\w+", expression)
    metrics = [re.sub("_(bucket|sum|count)$", "", name) for name in names]
    assert metrics
    assert set(metrics) <= set(known)
    grouped = [
        one.strip() for by in re.findall(r"by \((.*?)\)", expression) for one in by.split(",")
    ]
    selected = re.findall(r"(\w+)=~?\"", expression)
    for metric in metrics:
        assert {*grouped, *selected} <= known[metric] | _ADDED


def test_panels_have_distinct_places_and_alerts_say_what_to_do() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in _DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    for group in _ALERTS["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"].keys() == {"summary", "description"}
