"""HorizontalPodAutoscalers."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.errors import BadRequestError
from moorage.apiserver.registry.codec import Media
from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    CODEC,
    KINDS,
    changed,
    complaint,
    decoded,
    update_complaint,
)

NAME = "HorizontalPodAutoscaler"
KIND = KINDS[NAME]
V2, V1 = KIND.served
PREFIX = "autoscaling.alpha.kubernetes.io"
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
METRIC = {"name": "m", "selector": {"matchLabels": {"a": "<b>"}}}
SOURCES: dict[str, dict[str, Any]] = {
    "Resource": {
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}
    },
    "ContainerResource": {
        "containerResource": {
            "name": "cpu",
            "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 50},
        }
    },
    "Pods": {"pods": {"metric": METRIC, "target": {"type": "AverageValue", "averageValue": "5"}}},
    "External": {"external": {"metric": METRIC, "target": {"type": "Value", "value": "7"}}},
    "Object": {
        "object": {
            "metric": {"name": "n"},
            "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
            "target": {"type": "Value", "value": "100m"},
        }
    },
}
STATUSES: list[dict[str, Any]] = [
    {"type": "Resource",
     "resource": {"name": "cpu", "current": {"averageUtilization": 9, "averageValue": "90m"}}},
    {"type": "ContainerResource",
     "containerResource": {"name": "cpu", "container": "c", "current": {"averageValue": "3m"}}},
    {"type": "Pods", "pods": {"metric": METRIC, "current": {"averageValue": "4"}}},
    {"type": "External", "external": {"metric": METRIC, "current": {"value": "0"}}},
    {"type": "Object",
     "object": {"metric": {"name": "n"}, "current": {"value": "1", "averageValue": "2"},
                "describedObject": {"kind": "Service", "name": "s"}}},
]  # fmt: skip
SUPPORTED = '"ContainerResource", "External", "Object", "Pods", "Resource"'


def metric(type_: str, **changes: Any) -> dict[str, Any]:
    """Return a metric of a type, with changes to its source."""
    (field, source), *_ = SOURCES[type_].items()
    return {"type": type_, field: copy.deepcopy(source) | changes}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, None),
        ({"spec.metrics": [metric(type_) for type_ in SOURCES]}, None),
        ({"spec.maxReplicas": 0},
         "[spec.maxReplicas: Required value: must be set and greater than 0, spec.maxReplicas: "
         "Invalid value: 0: must be greater than or equal to `minReplicas`]"),
        ({"spec.maxReplicas": -1, "spec.minReplicas": -2},
         "[spec.minReplicas: Invalid value: -2: must be greater than or equal to 1, "
         "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1]"),
        ({"spec.minReplicas": 0, "spec.metrics": [metric("External")]},
         "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"),
        ({"spec.minReplicas": 0},
         "[spec.minReplicas: Invalid value: 0: must be greater than or equal to 1, spec.metrics: "
         "Forbidden: must specify at least one Object or External metric to support scaling to "
         "zero replicas]"),
        ({"spec.scaleTargetRef": {"apiVersion": "apps/v1"}},
         "[spec.scaleTargetRef.kind: Required value, spec.scaleTargetRef.name: Required value]"),
        ({"spec.scaleTargetRef.kind": "a/b"},
         'spec.scaleTargetRef.kind: Invalid value: "a/b": may not contain \'/\''),
        ({"spec.scaleTargetRef.apiVersion": "v1"},
         'spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group'),
        ({"spec.scaleTargetRef": {"kind": "ReplicationController", "name": "r"}}, None),
        ({"spec.scaleTargetRef.apiVersion": "a/b/c"},
         'spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: '
         "a/b/c"),
        ({"spec.metrics": [{"type": "Resource"}]},
         "spec.metrics[0].resource: Required value: must populate information for the given "
         "metric source"),
        ({"spec.metrics": [{**metric("Pods"), "type": "Resource"}]},
         "spec.metrics[0].resource: Required value: must populate information for the given "
         "metric source"),
        ({"spec.metrics": [{**metric("Pods"), **metric("Resource")}]},
         "spec.metrics[0].pods: Forbidden: must populate the given metric source only"),
        ({"spec.metrics": [metric("Resource", name="")]},
         "spec.metrics[0].resource.name: Required value: must specify a resource name"),
        ({"spec.metrics": [metric("Resource", target={"type": "Utilization"})]},
         "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a "
         "target raw value or a target utilization"),
        ({"spec.metrics": [metric("Resource", target={
            "type": "Utilization", "averageUtilization": 0, "averageValue": "0"})]},
         '[spec.metrics[0].resource.target.averageValue: Invalid value: "0": must be positive, '
         "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater "
         "than 0, spec.metrics[0].resource.target.averageValue: Forbidden: may not set both a "
         "target raw value and a target utilization]"),
        ({"spec.metrics": [metric("Resource", target={"type": "X", "averageValue": "1"})]},
         'spec.metrics[0].resource.target.type: Invalid value: "X": must be either Utilization, '
         "Value, or AverageValue"),
        ({"spec.metrics": [metric("ContainerResource", name="gpu", container="A")]},
         '[spec.metrics[0].containerResource.name: Invalid value: "gpu": must be a standard '
         'resource type or fully qualified, spec.metrics[0].containerResource.name: Invalid value: '
         '"gpu": must be a standard resource for containers, '
         'spec.metrics[0].containerResource.container: Invalid value: "A": a lowercase RFC 1123 '
         "label must consist of lower case alphanumeric characters or '-', and must start and end "
         "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
         "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')]"),
        ({"spec.metrics": [metric("ContainerResource", name="", container="")]},
         "[spec.metrics[0].containerResource.name: Required value: must specify a resource name, "
         "spec.metrics[0].containerResource.container: Required value: must specify a container]"),
        ({"spec.metrics": [metric("Pods", metric={"name": ""}, target={"type": "Value"})]},
         "[spec.metrics[0].pods.metric.name: Required value: must specify a metric name, "
         "spec.metrics[0].pods.target.averageValue: Required value: must specify a positive "
         "target averageValue]"),
        ({"spec.metrics": [metric("External", metric={"name": "a%"}, target={"type": "Value"})]},
         '[spec.metrics[0].external.metric.name: Invalid value: "a%": may not contain \'%\', '
         "spec.metrics[0].external.target.averageValue: Required value: must set either a target "
         "value for metric or a per-pod target]"),
        ({"spec.metrics": [metric("External", target={
            "type": "Value", "value": "1", "averageValue": "1"})]},
         "spec.metrics[0].external.target.value: Forbidden: may not set both a target value for "
         "metric and a per-pod target"),
        ({"spec.metrics": [metric("Object", target={"type": "Value"})]},
         "spec.metrics[0].object.target.averageValue: Required value: must set either a target "
         "value or averageValue"),
        ({"spec.behavior": {"scaleUp": {"stabilizationWindowSeconds": -1, "selectPolicy": "X",
                                        "tolerance": "-1"}}},
         "[spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: -1: must be greater "
         'than or equal to zero, spec.behavior.scaleUp.selectPolicy: Unsupported value: "X": '
         'supported values: "Disabled", "Max", "Min", spec.behavior.scaleUp.tolerance: Invalid '
         'value: "-1": must be greater than or equal to 0]'),
        ({"spec.behavior": {"scaleDown": {"stabilizationWindowSeconds": 3601, "policies": [
            {"type": "X", "value": 0, "periodSeconds": 0},
            {"type": "Pods", "value": 1, "periodSeconds": 1801}]}}},
         "[spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less "
         "than or equal to 3600, spec.behavior.scaleDown.policies[0].type: Unsupported value: "
         '"X": supported values: "Percent", "Pods", spec.behavior.scaleDown.policies[0].value: '
         "Invalid value: 0: must be greater than zero, "
         "spec.behavior.scaleDown.policies[0].periodSeconds: Invalid value: 0: must be greater "
         "than zero, spec.behavior.scaleDown.policies[1].periodSeconds: Invalid value: 1801: "
         "must be less than or equal to 1800]"),
        ({"spec.metrics": [{"type": "X"}]},
         f'spec.metrics[0].type: Unsupported value: "X": supported values: {SUPPORTED}'),
    ],
)  # fmt: skip
def test_rules(sets: dict[str, Any], says: str | None) -> None:
    refusal = complaint(NAME, changed(NAME, sets))
    if says is None:
        assert refusal is None
        return
    assert refusal == f'HorizontalPodAutoscaler.autoscaling "h" is invalid: {says}'


def test_an_update_may_keep_what_is_wrong_with_an_api_version() -> None:
    wrong = changed(NAME, {"spec.scaleTargetRef.apiVersion": "v1"})
    assert update_complaint(NAME, changed(NAME, {"spec.scaleTargetRef.apiVersion": "v2"}), wrong)
    more = changed(NAME, {"spec.scaleTargetRef.apiVersion": "v1", "spec.maxReplicas": 9})
    assert update_complaint(NAME, more, wrong) is None
    described = {"apiVersion": "a/b/c", "kind": "K", "name": "n"}
    wrong = changed(NAME, {"spec.metrics": [metric("Object", describedObject=described)]})
    assert "unexpected GroupVersion" in str(complaint(NAME, wrong))
    assert update_complaint(NAME, wrong, wrong) is None
    assert "unexpected GroupVersion" in str(update_complaint(NAME, wrong, changed(NAME)))


def test_a_minimum_of_zero_may_stay() -> None:
    zero = changed(NAME, {"spec.minReplicas": 0, "spec.metrics": [metric("External")]})
    assert update_complaint(NAME, zero, zero) is None
    assert "minReplicas" in str(update_complaint(NAME, zero, changed(NAME)))


@pytest.mark.parametrize("field", ["currentReplicas", "desiredReplicas"])
def test_counts_in_the_status_are_not_negative(field: str) -> None:
    new = {**changed(NAME), "status": {"desiredReplicas": 1, field: -1}}
    says = f"status.{field}: Invalid value: -1: must be greater than or equal to 0"
    assert update_complaint(NAME, new, changed(NAME), "status") == says


def test_defaults() -> None:
    spec = decoded(KIND, changed(NAME))["spec"]
    assert (spec["minReplicas"], spec["metrics"], "behavior" in spec) == (1, [CPU], False)
    spec = decoded(KIND, changed(NAME, {"spec.behavior": {"scaleDown": {"selectPolicy": "Min"}}}))
    assert spec["spec"]["behavior"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
        },
        "scaleDown": {
            "selectPolicy": "Min",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
        },
    }


def test_a_new_autoscaler_has_no_status_and_an_update_keeps_it() -> None:
    new = decoded(KIND, {**changed(NAME), "status": {"desiredReplicas": 3}})
    old = copy.deepcopy(new)
    KIND.strategy.prepare_create(new)
    assert new["status"] == {"desiredReplicas": 0}
    KIND.strategy.prepare_update(new, old)
    assert new["status"]["desiredReplicas"] == 3


@pytest.mark.parametrize(
    ("metrics", "current", "shown"),
    [
        ([], [], "<none>"),
        ([CPU], [], "cpu: <unknown>/80%"),
        ([CPU], STATUSES[:1], "cpu: 9%/80%"),
        ([CPU], [{"type": "Resource", "resource": {"name": "cpu", "current": {}}}],
         "cpu: <unknown>/80%"),
        ([metric("Resource")], [], "memory: <unknown>/1Gi"),
        ([metric("Resource")], STATUSES[:1], "memory: 90m/1Gi"),
        ([metric("ContainerResource")], [], "cpu: <unknown>/50%"),
        ([metric("ContainerResource", target={"averageValue": "7m"})], STATUSES[1:2],
         "cpu: 3m/7m"),
        ([metric("Pods")], [], "<unknown>/5"),
        ([metric("Pods")], STATUSES[2:3], "4/5"),
        ([metric("External")], [], "<unknown>/7"),
        ([metric("External")], STATUSES[3:4], "0/7"),
        ([metric("External", target={"averageValue": "8"})], STATUSES[3:4], "<unknown>/8 (avg)"),
        ([metric("Object")], STATUSES[4:], "1/100m"),
        ([metric("Object", target={"averageValue": "8"})], STATUSES[4:], "2/8 (avg)"),
        ([CPU, metric("Pods"), CPU, CPU], [], "cpu: <unknown>/80%, <unknown>/5 + 2 more..."),
        ([{"type": "X"}], [], "<unknown type>"),
        ([{"type": "Resource", "resource": {"name": "cpu", "target": {}}}], [],
         "cpu: <unknown>/<auto>"),
    ],
)  # fmt: skip
def test_targets(metrics: list[Any], current: list[Any], shown: str) -> None:
    fields = {
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "maxReplicas": 3,
            "metrics": metrics,
        },
        "status": {"currentReplicas": 2, "currentMetrics": current},
    }
    assert row(NAME, fields) == ["x", "Deployment/d", shown, "<unset>", 3, 2, "90s"]


def test_columns() -> None:
    assert columns(NAME) == "Name Reference Targets MinPods MaxPods Replicas Age |"
    assert row(NAME, {"spec": {"minReplicas": 0}})[3] == "0"


def test_the_cpu_utilization_is_a_field_of_v1() -> None:
    obj = {**changed(NAME), "status": {"currentMetrics": STATUSES[:1], "desiredReplicas": 1}}
    shown = CODEC.from_storage(V1, decoded(KIND, obj))
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 80
    assert shown["status"]["currentCPUUtilizationPercentage"] == 9
    assert shown["metadata"]["annotations"] == {
        f"{PREFIX}/current-metrics": '[{"type":"Resource","resource":{"name":"cpu",'
        '"currentAverageUtilization":9,"currentAverageValue":"90m"}}]'
    }


def test_the_rest_of_v2_is_in_annotations_of_v1() -> None:
    obj = changed(
        NAME,
        {
            "metadata.annotations": {"mine": "1"},
            "spec.metrics": [CPU, metric("Pods"), metric("Object")],
            "spec.behavior": {"scaleUp": {"tolerance": "50m"}},
        },
    )
    condition = {"type": "AbleToScale", "status": "True", "reason": "R"}
    obj["status"] = {"desiredReplicas": 1, "conditions": [condition]}
    shown = CODEC.from_storage(V1, decoded(KIND, obj))
    annotations = shown["metadata"]["annotations"]
    assert annotations["mine"] == "1"
    assert annotations[f"{PREFIX}/metrics"] == (
        '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5","selector":'
        '{"matchLabels":{"a":"\\u003cb\\u003e"}}}},{"type":"Object","object":{"target":'
        '{"apiVersion":"v1","kind":"Service","name":"s"},"metricName":"n",'
        '"targetValue":"100m"}}]'
    )
    assert annotations[f"{PREFIX}/conditions"] == (
        '[{"type":"AbleToScale","status":"True","lastTransitionTime":null,"reason":"R"}]'
    )
    assert json.loads(annotations[f"{PREFIX}/behavior"])["ScaleUp"] == {
        "StabilizationWindowSeconds": 0,
        "SelectPolicy": "Max",
        "Policies": [
            {"Type": "Pods", "Value": 4, "PeriodSeconds": 15},
            {"Type": "Percent", "Value": 100, "PeriodSeconds": 15},
        ],
        "Tolerance": "50m",
    }


def test_a_client_of_v1_loses_nothing_of_v2() -> None:
    obj = changed(
        NAME,
        {
            "metadata.annotations": {"mine": "1"},
            "spec.metrics": [*(metric(type_) for type_ in SOURCES), CPU],
            "spec.behavior": {"scaleDown": {"stabilizationWindowSeconds": 5, "tolerance": "0"}},
        },
    )
    time = "2026-01-01T00:00:00Z"
    conditions = [{"type": "A", "status": "True", "lastTransitionTime": time, "message": "<m>"}]
    obj["status"] = {
        "observedGeneration": 1, "lastScaleTime": time, "currentReplicas": 1,
        "desiredReplicas": 2, "currentMetrics": STATUSES, "conditions": conditions,
    }  # fmt: skip
    stored = decoded(KIND, obj)
    assert stored["status"]["currentMetrics"] == STATUSES
    assert round_trip(stored) == stored


def test_an_object_of_v1_alone_has_upstreams_default() -> None:
    body = msgspec.json.encode(changed(NAME))
    spec = CODEC.decode(KIND, V1, body, Media.JSON).obj["spec"]
    assert (spec["metrics"], spec["minReplicas"]) == ([CPU], 1)
    body = msgspec.json.encode(changed(NAME, {"spec.targetCPUUtilizationPercentage": 5}))
    spec = CODEC.decode(KIND, V1, body, Media.JSON).obj["spec"]
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 5


@pytest.mark.parametrize("name", ["metrics", "current-metrics", "conditions", "behavior"])
@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "1", "[1]", '[{"type":1}]', '[{"type":"Pods","pods":1}]', "[]", "{}",
     '[{"type":"Pods","pods":{"targetAverageValue":"x","currentAverageValue":[]}}]',
     '[{"lastTransitionTime":"yesterday"}]', '{"ScaleUp":{"Policies":[1]}}',
     '{"ScaleUp":{"Tolerance":"x"}}', '{"ScaleUp":{"StabilizationWindowSeconds":5000000000}}',
     "[" * 5000, '[{"type":"Resource","resource":{"targetAverageUtilization":1e9}}]'],
)  # fmt: skip
def test_an_annotation_of_another_form_is_ignored(name: str, text: str) -> None:
    obj = changed(NAME, {"metadata.annotations": {f"{PREFIX}/{name}": text}})
    stored = CODEC.decode(KIND, V1, msgspec.json.encode(obj), Media.JSON).obj
    assert "annotations" not in stored["metadata"]
    assert stored["spec"]["metrics"]
    assert KIND.strategy.validate(stored) is not None


def test_an_annotation_without_end_is_refused() -> None:
    obj = changed(NAME, {"metadata.annotations": {f"{PREFIX}/metrics": "[" + " " * 262144}})
    with pytest.raises(BadRequestError, match="is longer than 262144 characters"):
        CODEC.decode(KIND, V1, msgspec.json.encode(obj), Media.JSON)


def test_case_of_names_in_the_behavior_does_not_matter() -> None:
    text = '{"scaleup":{"selectpolicy":"Min","POLICIES":[{"type":"Pods","value":1}]}}'
    obj = changed(NAME, {"metadata.annotations": {f"{PREFIX}/behavior": text}})
    stored = CODEC.decode(KIND, V1, msgspec.json.encode(obj), Media.JSON).obj
    rules = stored["spec"]["behavior"]["scaleUp"]
    assert rules["selectPolicy"] == "Min"
    assert rules["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 0}]


def test_an_object_of_v2_has_no_annotations_of_conversions() -> None:
    obj = changed(NAME, {"metadata.annotations": {f"{PREFIX}/metrics": "[]", "mine": "1"}})
    assert decoded(KIND, obj)["metadata"]["annotations"] == {"mine": "1"}


AMOUNTS = (
    st.integers(1, 10**6)
    .map(lambda milli: f"{milli}m")
    .map(lambda text: str(msgspec.json.decode(json.dumps(text))))
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1)
IDENTIFIERS = st.fixed_dictionaries(
    {"name": TEXTS},
    optional={"selector": st.fixed_dictionaries(
        {"matchLabels": st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=3)})},
)  # fmt: skip
USAGES = st.one_of(
    st.integers(1, 10**6).map(lambda n: {"type": "Utilization", "averageUtilization": n}),
    AMOUNTS.map(lambda amount: {"type": "AverageValue", "averageValue": amount}),
)
VALUES = st.one_of(
    AMOUNTS.map(lambda amount: {"type": "Value", "value": amount}),
    AMOUNTS.map(lambda amount: {"type": "AverageValue", "averageValue": amount}),
)
METRICS = st.one_of(
    st.builds(lambda n, t: {"type": "Resource", "resource": {"name": n, "target": t}},
              st.just("memory"), USAGES),
    st.builds(lambda c, t: {"type": "ContainerResource", "containerResource": {
        "name": "cpu", "container": c, "target": t}}, TEXTS, USAGES),
    st.builds(lambda m, a: {"type": "Pods", "pods": {
        "metric": m, "target": {"type": "AverageValue", "averageValue": a}}},
        IDENTIFIERS, AMOUNTS),
    st.builds(lambda m, t: {"type": "External", "external": {"metric": m, "target": t}},
              IDENTIFIERS, VALUES),
    st.builds(lambda m, t, k: {"type": "Object", "object": {
        "metric": m, "target": t, "describedObject": {"kind": k, "name": k}}},
        IDENTIFIERS, VALUES, TEXTS),
)  # fmt: skip


@given(st.lists(METRICS, max_size=4), st.booleans())
def test_metrics_survive_v1(metrics: list[Any], has_cpu: bool) -> None:
    spec = [*metrics, *([CPU] if has_cpu else [])]
    stored = decoded(KIND, changed(NAME, {"spec.metrics": spec}))
    assert round_trip(stored) == stored


def round_trip(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the object as a client of v1 sends back what it read."""
    body = msgspec.json.encode(CODEC.from_storage(V1, copy.deepcopy(stored)))
    return CODEC.decode(KIND, V1, body, Media.JSON).obj
