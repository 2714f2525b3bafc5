"""What objects of each kind use, and which scopes they are in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moorage.api.quotas import ResourceQuotaSpec, ScopedSelector
from moorage.apiserver.quota import (
    charge_of,
    exceeded,
    increase,
    is_subject,
    parsed,
    shown,
    used_by,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def typed(resource: str, obj: dict[str, Any]) -> Any:
    return msgspec.convert(obj, charge_of(resource).type)


def usage(resource: str, obj: dict[str, Any]) -> dict[str, str]:
    amounts = charge_of(resource).usage(typed(resource, obj), NOW)
    return {name: str(amount) for name, amount in amounts.items()}


def container(name: str = "c", *, limits: Any = None, **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests, "limits": limits or {}}}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    status = spec.pop("status", {})
    metadata = spec.pop("metadata", {})
    return {
        "metadata": metadata,
        "spec": {"containers": list(containers or [container()]), **spec},
        "status": status,
    }


COUNTED = {"count/pods": "1"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod(), {"pods": "1"}),
        (pod(container(cpu="1", memory="1Gi", limits={"cpu": "2"})),
         {"pods": "1", "cpu": "1", "requests.cpu": "1", "memory": "1Gi", "requests.memory": "1Gi",
          "limits.cpu": "2"}),
        (pod(container(cpu="1"), container("d", cpu="500m")),
         {"pods": "1", "cpu": "1500m", "requests.cpu": "1500m"}),
        (pod(container(cpu="1"), initContainers=[container("i", cpu="3")]),
         {"pods": "1", "cpu": "3", "requests.cpu": "3"}),
        # What the class costs is charged, to limits only where there is one.
        (pod(container(memory="1Gi", limits={"memory": "1Gi"}),
             overhead={"memory": "128Mi", "cpu": "250m"}, runtimeClassName="vm"),
         {"pods": "1", "memory": "1152Mi", "requests.memory": "1152Mi", "limits.memory": "1152Mi",
          "cpu": "250m", "requests.cpu": "250m"}),
        (pod(container(**{"ephemeral-storage": "1Gi"})),
         {"pods": "1", "ephemeral-storage": "1Gi", "requests.ephemeral-storage": "1Gi"}),
        (pod(container(**{"hugepages-2Mi": "4Mi", "x.io/gpu": "2"})),
         {"pods": "1", "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi",
          "requests.x.io/gpu": "2"}),
        (pod(container(cpu="1"), resources={"requests": {"cpu": "4"}}),
         {"pods": "1", "cpu": "4", "requests.cpu": "4"}),
        # It counts as an object until it is removed, but uses nothing once it has ended.
        (pod(container(cpu="1"), status={"phase": "Succeeded"}), {}),
        (pod(container(cpu="1"), status={"phase": "Failed"}), {}),
        (pod(container(cpu="1"), metadata={"deletionTimestamp": "2026-01-01T11:59:00Z",
                                           "deletionGracePeriodSeconds": 59}), {}),
        (pod(container(cpu="1"), metadata={"deletionTimestamp": "2026-01-01T11:59:00Z",
                                           "deletionGracePeriodSeconds": 60}),
         {"pods": "1", "cpu": "1", "requests.cpu": "1"}),
    ],
)  # fmt: skip
def test_usage_of_pods(given: dict[str, Any], expected: dict[str, str]) -> None:
    assert usage("pods", given) == {**COUNTED, **expected}


@pytest.mark.parametrize(
    ("spec", "node_ports", "balancers"),
    [
        ({}, "0", "0"),
        ({"type": "NodePort", "ports": [{"port": 1}, {"port": 2}]}, "2", "0"),
        ({"type": "LoadBalancer", "ports": [{"port": 1}]}, "1", "1"),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False,
          "ports": [{"port": 1, "nodePort": 30000}, {"port": 2}]}, "1", "1"),
    ],
)  # fmt: skip
def test_usage_of_services(spec: dict[str, Any], node_ports: str, balancers: str) -> None:
    assert usage("services", {"spec": spec}) == {
        "count/services": "1", "services": "1", "services.nodeports": node_ports,
        "services.loadbalancers": balancers,
    }  # fmt: skip


def test_usage_of_claims() -> None:
    counted = {"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1"}
    of_class = "gold.storageclass.storage.k8s.io/"
    resources = {"requests": {"storage": "1500m"}}
    assert usage("persistentvolumeclaims", {}) == counted
    assert usage("persistentvolumeclaims", {"spec": {"resources": resources}}) == {
        **counted, "requests.storage": "2"
    }  # fmt: skip
    spec = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "gold"}
    grown = {"status": {"allocatedResources": {"storage": "2Gi"}}}
    expected = {
        **counted, "requests.storage": "2Gi", f"{of_class}persistentvolumeclaims": "1",
        f"{of_class}requests.storage": "2Gi",
    }  # fmt: skip
    assert usage("persistentvolumeclaims", {"spec": spec, **grown}) == expected
    annotated = {"annotations": {"volume.beta.kubernetes.io/storage-class": "gold"}}
    spec = {**spec, "storageClassName": "iron"}
    assert usage("persistentvolumeclaims", {"metadata": annotated, "spec": spec, **grown}) == (
        expected
    )


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("secrets", {"count/secrets": "1", "secrets": "1"}),
        ("deployments.apps", {"count/deployments.apps": "1"}),
        ("widgets.x.io", {"count/widgets.x.io": "1"}),
    ],
)
def test_usage_of_what_is_counted(resource: str, expected: dict[str, str]) -> None:
    assert usage(resource, {}) == expected
    assert charge_of(resource).is_in(ScopedSelector(scope_name="BestEffort"), None) is False


NAMES = ["pods", "count/pods", "cpu", "limits.memory", "requests.x.io/gpu", "x.io/gpu",
         "hugepages-2Mi", "requests.hugepages-2Mi", "services", "services.nodeports", "secrets",
         "count/secrets", "count/widgets.x.io", "persistentvolumeclaims", "requests.storage",
         "gold.storageclass.storage.k8s.io/requests.storage"]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("pods", NAMES[:5] + NAMES[6:8]),
        ("services", NAMES[8:10]),
        ("secrets", NAMES[10:12]),
        ("widgets.x.io", NAMES[12:13]),
        ("persistentvolumeclaims", NAMES[13:]),
        ("configmaps", []),
    ],
)
def test_which_resources_concern_whom(resource: str, expected: list[str]) -> None:
    assert charge_of(resource).concerned(NAMES) == expected


@pytest.mark.parametrize(
    ("names", "given", "says"),
    [
        (["pods"], pod(), ""),
        (["cpu"], pod(container(cpu="1")), ""),
        (["cpu"], pod(), "must specify cpu for: c"),
        (["requests.cpu", "limits.memory", "limits.ephemeral-storage"],
         pod(container("b"), container("a", cpu="1"), initContainers=[container("i")]),
         "must specify limits.memory for: a,b,i; requests.cpu for: b,i"),
        (["cpu"], pod(resources={"requests": {"memory": "1Gi"}}), ""),
    ],
)  # fmt: skip
def test_what_a_pod_must_state(names: list[str], given: dict[str, Any], says: str) -> None:
    assert charge_of("pods").omission(names, typed("pods", given)) == says


_TERM = {"topologyKey": "zone"}


def _affinity(kind: str, **term: Any) -> dict[str, Any]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {kind: {required: [{**_TERM, **term}]}}


def _preferred(**term: Any) -> dict[str, Any]:
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    weighted = {"weight": 1, "podAffinityTerm": {**_TERM, **term}}
    return {"podAntiAffinity": {preferred: [weighted]}}


@pytest.mark.parametrize(
    ("scope", "given", "expected"),
    [
        ("Terminating", pod(activeDeadlineSeconds=0), True),
        ("Terminating", pod(), False),
        ("NotTerminating", pod(activeDeadlineSeconds=5), False),
        ("NotTerminating", pod(), True),
        ("BestEffort", pod(), True),
        ("BestEffort", pod(container(cpu="1")), False),
        ("NotBestEffort", pod(), False),
        ("NotBestEffort", pod(container(cpu="1")), True),
        ("CrossNamespacePodAffinity", pod(), False),
        ("CrossNamespacePodAffinity", pod(affinity=_affinity("podAffinity")), False),
        ("CrossNamespacePodAffinity",
         pod(affinity=_affinity("podAffinity", namespaces=["other"])), True),
        ("CrossNamespacePodAffinity", pod(affinity=_preferred(namespaceSelector={})), True),
        ("VolumeAttributesClass", pod(), False),
        ("Unknown", pod(), False),
    ],
)  # fmt: skip
def test_scopes_of_pods(scope: str, given: dict[str, Any], expected: bool) -> None:
    selector = ScopedSelector(scope_name=scope, operator="Exists")
    assert charge_of("pods").is_in(selector, typed("pods", given)) is expected


@pytest.mark.parametrize(
    ("operator", "values", "of_high", "of_none"),
    [
        ("Exists", (), True, False),
        ("DoesNotExist", (), False, True),
        ("In", ("high", "low"), True, False),
        ("In", ("low",), False, False),
        ("NotIn", ("high",), False, True),
        ("NotIn", ("low",), True, True),
    ],
)
def test_scopes_of_classes(
    operator: str, values: tuple[str, ...], of_high: bool, of_none: bool
) -> None:
    by_priority = ScopedSelector(scope_name="PriorityClass", operator=operator, values=values)
    high = typed("pods", pod(priorityClassName="high"))
    assert charge_of("pods").is_in(by_priority, high) is of_high
    assert charge_of("pods").is_in(by_priority, typed("pods", pod())) is of_none
    by_attributes = ScopedSelector(
        scope_name="VolumeAttributesClass", operator=operator, values=values
    )
    claims = charge_of("persistentvolumeclaims")
    for given in (
        {"spec": {"volumeAttributesClassName": "high"}},
        {"status": {"currentVolumeAttributesClassName": "high"}},
        {"status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "high"}}},
    ):
        claim = typed("persistentvolumeclaims", given)
        assert claims.is_in(by_attributes, claim) is of_high
        assert claims.is_in(by_priority, claim) is False
    assert claims.is_in(by_attributes, typed("persistentvolumeclaims", {})) is of_none


def _spec(*scopes: str, **hard: str) -> ResourceQuotaSpec:
    return msgspec.convert({"hard": hard, "scopes": scopes}, ResourceQuotaSpec)


def test_objects_in_all_scopes_are_subject() -> None:
    charge = charge_of("pods")
    short = typed("pods", pod(activeDeadlineSeconds=5))
    assert is_subject(_spec("Terminating"), ["pods"], charge, short)
    assert is_subject(_spec("Terminating", "BestEffort"), ["pods"], charge, short)
    assert not is_subject(_spec("Terminating", "NotBestEffort"), ["pods"], charge, short)
    assert not is_subject(_spec("Terminating"), ["services"], charge, short)
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    both = msgspec.convert(
        {"scopes": ["Terminating"], "scopeSelector": selector}, ResourceQuotaSpec
    )
    assert not is_subject(both, ["pods"], charge, short)


def test_the_use_of_several_objects() -> None:
    pods = [
        typed("pods", pod(container(cpu="1"), activeDeadlineSeconds=5)),
        typed("pods", pod(container(cpu="500m"), activeDeadlineSeconds=5)),
        typed("pods", pod(container(cpu="8"))),
    ]
    spec = _spec("Terminating", **{"cpu": "4", "pods": "9", "limits.cpu": "1", "secrets": "1"})
    used = used_by(spec, charge_of("pods"), pods, NOW)
    assert {name: str(amount) for name, amount in used.items()} == {
        "cpu": "1500m", "pods": "2", "limits.cpu": "0"
    }  # fmt: skip
    assert used_by(spec, charge_of("secrets"), [], NOW) == parsed({"secrets": "0"})


def test_amounts() -> None:
    assert shown(increase(parsed({"a": "3", "b": "1"}), parsed({"a": "1", "b": "2"}))) == "a=2,b=0"
    limits = parsed({"cpu": "1", "pods": "2", "memory": "1"})
    assert exceeded(parsed({"pods": "3", "cpu": "1", "other": "9"}), limits) == ["pods"]


def test_a_pod_is_charged_for_the_most_of_its_resize() -> None:
    container_status = {"name": "c", "allocatedResources": {"cpu": "2"},
                        "resources": {"requests": {"cpu": "2"}}}  # fmt: skip
    given = pod(container(cpu="1"), status={"containerStatuses": [container_status]})
    assert usage("pods", given)["requests.cpu"] == "2"
