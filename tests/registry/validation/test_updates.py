"""What may change in an object that exists, kind by kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.registry.validation.rules import changed, update_complaint

IMMUTABLE = "field is immutable when `immutable` is set"
POD = "pod updates may not change fields other than"


@pytest.mark.parametrize(
    ("kind", "before", "after", "says"),
    [
        ("RuntimeClass", {}, {"handler": "kata"},
         'handler: Invalid value: "kata": field is immutable'),
        ("RuntimeClass", {}, {"handler": "A"}, None),
        ("RuntimeClass", {}, {"overhead": {"podFixed": {"cpu": "1"}}}, ""),
        ("RuntimeClass", {}, {"scheduling": {"nodeSelector": {"a": "b"}}}, ""),
        ("ConfigMap", {"immutable": True}, {"immutable": True, "data": {"a": "c"}},
         f"data: Forbidden: {IMMUTABLE}"),
        ("ConfigMap", {"immutable": True}, {}, f"immutable: Forbidden: {IMMUTABLE}"),
        ("ConfigMap", {"immutable": True}, {"immutable": True, "metadata.labels": {"a": "b"}}, ""),
        ("ConfigMap", {}, {"immutable": True, "data": {"a": "c"}}, ""),
        ("Secret", {"immutable": True}, {"immutable": True, "data": {"a": "eQ=="}},
         f"data: Forbidden: {IMMUTABLE}"),
        ("Secret", {"type": "a"}, {"type": "b"}, 'type: Invalid value: "b": field is immutable'),
        ("PriorityClass", {}, {"value": 6}, "value: Forbidden: may not be changed in an update."),
        ("PriorityClass", {"preemptionPolicy": "Never"},
         {"preemptionPolicy": "PreemptLowerPriority"},
         'preemptionPolicy: Invalid value: "PreemptLowerPriority": field is immutable'),
        ("PriorityClass", {}, {"description": "other"}, ""),
        ("Deployment", {}, {"spec.selector.matchLabels": {"x": "y"},
                            "spec.template.metadata.labels": {"x": "y"}},
         'spec.selector: Invalid value: {"matchLabels":{"x":"y"}}: field is immutable'),
        ("Deployment", {}, {"spec.replicas": 7}, ""),
        ("ReplicaSet", {}, {"spec.selector.matchLabels": {"x": "y"},
                            "spec.template.metadata.labels": {"x": "y"}},
         'spec.selector: Invalid value: {"matchLabels":{"x":"y"}}: field is immutable'),
        ("RoleBinding", {}, {"roleRef.name": "z"},
         'roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role",'
         '"name":"z"}: cannot change roleRef'),
        ("RoleBinding", {}, {"subjects": []}, ""),
        ("Service", {"spec.clusterIP": "10.0.0.1", "spec.clusterIPs": ["10.0.0.1"]},
         {"spec.clusterIP": "10.0.0.2", "spec.clusterIPs": ["10.0.0.2"]},
         'spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set'),
        ("Service", {"spec.clusterIP": "10.0.0.1", "spec.clusterIPs": ["10.0.0.1"]},
         {"spec.type": "ExternalName", "spec.externalName": "a.b"}, ""),
        ("Node", {"spec.podCIDR": "10.0.0.0/24", "spec.podCIDRs": ["10.0.0.0/24"]},
         {"spec.podCIDR": "10.0.1.0/24", "spec.podCIDRs": ["10.0.1.0/24"]},
         "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"),
        ("Node", {}, {"spec.podCIDR": "10.0.1.0/24", "spec.podCIDRs": ["10.0.1.0/24"]}, ""),
        ("Node", {"spec.providerID": "a"}, {"spec.providerID": "b"},
         'spec.providerID: Forbidden: node updates may not change providerID except from "" to '
         "valid"),
        ("EndpointSlice", {}, {"addressType": "IPv6"},
         'addressType: Invalid value: "IPv6": field is immutable'),
        ("Lease", {}, {"spec.leaseTransitions": -1},
         "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"),
    ],
)  # fmt: skip
def test_an_update(
    kind: str, before: dict[str, Any], after: dict[str, Any], says: str | None
) -> None:
    found = update_complaint(kind, changed(kind, after), changed(kind, before))
    if says is None:
        assert found is not None
        assert found.startswith('[handler: Invalid value: "A": a lowercase RFC 1123 label')
        assert found.endswith('handler: Invalid value: "A": field is immutable]')
    else:
        assert (found or "") == says


C = "spec.containers[0]"
TOLERATION = {"key": "a", "operator": "Exists"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {f"{C}.image": "other"}),
        ({}, {"metadata.labels": {"a": "b"}}),
        ({}, {"spec.tolerations": [TOLERATION]}),
        ({"spec.tolerations": [TOLERATION]},
         {"spec.tolerations": [{"key": "b", "operator": "Exists"}, TOLERATION]}),
        ({}, {"spec.activeDeadlineSeconds": 5}),
        ({"spec.activeDeadlineSeconds": 5}, {"spec.activeDeadlineSeconds": 4}),
        ({"spec.schedulingGates": [{"name": "a"}, {"name": "b"}]},
         {"spec.schedulingGates": [{"name": "b"}]}),
        ({"spec.schedulingGates": [{"name": "a"}]}, {}),
        ({"spec.schedulingGates": [{"name": "a"}], "spec.nodeSelector": {"x": "y"}},
         {"spec.schedulingGates": [{"name": "a"}], "spec.nodeSelector": {"x": "y", "z": "1"}}),
        ({"spec.initContainers": [{"name": "i", "image": "a"}]},
         {"spec.initContainers": [{"name": "i", "image": "b"}]}),
    ],
)  # fmt: skip
def test_what_may_change_in_a_pod(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert update_complaint("Pod", changed("Pod", after), changed("Pod", before)) is None


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ({}, {"spec.runtimeClassName": "gvisor"}, "RuntimeClassName"),
        ({"spec.runtimeClassName": "gvisor"}, {}, "RuntimeClassName"),
        ({}, {"spec.overhead": {"cpu": "1"}}, "Overhead"),
        ({}, {"spec.nodeName": "n1"}, "NodeName"),
        ({}, {"spec.nodeSelector": {"a": "b"}}, "NodeSelector"),
        ({}, {"spec.schedulingGates": [{"name": "a"}]}, "SchedulingGates"),
        ({"spec.schedulingGates": [{"name": "a"}]},
         {"spec.schedulingGates": [{"name": "a"}, {"name": "b"}]}, "SchedulingGates"),
        ({"spec.schedulingGates": [{"name": "a"}], "spec.nodeSelector": {"x": "y"}},
         {"spec.schedulingGates": [{"name": "a"}], "spec.nodeSelector": {"x": "z"}},
         "NodeSelector"),
        ({}, {f"{C}.command": ["sh"]}, "Containers"),
        ({}, {f"{C}.resources": {"limits": {"cpu": "1"}}}, "Containers"),
        ({}, {"spec.containers[1]": {"name": "d", "image": "i"}}, "Containers"),
        ({}, {"spec.terminationGracePeriodSeconds": 5}, "TerminationGracePeriodSeconds"),
        ({}, {"spec.serviceAccountName": "sa"}, "ServiceAccountName"),
    ],
)  # fmt: skip
def test_what_may_not_change_in_a_pod(
    before: dict[str, Any], after: dict[str, Any], field: str
) -> None:
    says = update_complaint("Pod", changed("Pod", after), changed("Pod", before))
    assert says is not None
    assert says.startswith(f"spec: Forbidden: {POD}")
    assert f'"{field}"' in says


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({"spec.activeDeadlineSeconds": 5}, {"spec.activeDeadlineSeconds": 6},
         "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous "
         "value"),
        ({"spec.activeDeadlineSeconds": 5}, {},
         "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer "
         "to nil value"),
        ({"spec.tolerations": [TOLERATION]}, {},
         "spec.tolerations: Forbidden: existing toleration can not be modified except its "
         "tolerationSeconds"),
        ({"spec.tolerations": [TOLERATION]}, {"spec.tolerations": [{**TOLERATION, "key": "b"}]},
         "spec.tolerations: Forbidden: existing toleration can not be modified except its "
         "tolerationSeconds"),
    ],
)  # fmt: skip
def test_what_may_change_one_way_only(
    before: dict[str, Any], after: dict[str, Any], says: str
) -> None:
    assert update_complaint("Pod", changed("Pod", after), changed("Pod", before)) == says


DEBUGGER = {"name": "e", "image": "i", "terminationMessagePolicy": "File"}


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ([], [DEBUGGER], None),
        ([DEBUGGER], [DEBUGGER, {**DEBUGGER, "name": "f"}], None),
        ([DEBUGGER], [], 'spec.ephemeralContainers: Forbidden: existing ephemeral containers "e" '
         "may not be removed"),
        ([DEBUGGER], [{**DEBUGGER, "image": "j"}], "spec.ephemeralContainers[0]: Forbidden: "
         'existing ephemeral containers "e" may not be changed'),
        ([], [{**DEBUGGER, "name": "c"}],
         'spec.ephemeralContainers[0].name: Duplicate value: "c"'),
        ([], [{**DEBUGGER, "targetContainerName": "zz"}],
         'spec.ephemeralContainers[0].targetContainerName: Not found: "zz"'),
        ([], [{**DEBUGGER, "ports": [{"containerPort": 1}]}],
         "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container"),
    ],
)  # fmt: skip
def test_debugging_containers_are_added_and_stay(
    before: list[dict[str, Any]], after: list[dict[str, Any]], says: str | None
) -> None:
    new = changed("Pod", {"spec.ephemeralContainers": after} if after else {})
    old = changed("Pod", {"spec.ephemeralContainers": before} if before else {})
    assert update_complaint("Pod", new, old, "ephemeralcontainers") == says


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, None),
        ({"podIPs": [{"ip": "x"}]}, 'status.podIPs[0]: Invalid value: "x": must be a valid IP '
         "address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]},
         'status.podIPs[1]: Duplicate value: "10.0.0.1"'),
    ],
)  # fmt: skip
def test_a_pods_status(status: dict[str, Any], says: str | None) -> None:
    new = changed("Pod", {"status": status})
    assert update_complaint("Pod", new, changed("Pod"), "status") == says


@pytest.mark.parametrize(
    ("kind", "status", "says"),
    [
        ("Deployment", {"replicas": 3, "readyReplicas": 2, "availableReplicas": 1}, None),
        ("Deployment", {"replicas": 1, "readyReplicas": 2},
         "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"),
        ("Deployment", {"replicas": 3, "readyReplicas": 1, "availableReplicas": 2},
         "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"),
        ("Deployment", {"replicas": -1},
         "[status.replicas: Invalid value: -1: must be greater than or equal to 0, "
         "status.updatedReplicas: Invalid value: 0: cannot be greater than status.replicas, "
         "status.readyReplicas: Invalid value: 0: cannot be greater than status.replicas, "
         "status.availableReplicas: Invalid value: 0: cannot be greater than status.replicas]"),
        ("ReplicaSet", {"replicas": 3, "fullyLabeledReplicas": 3}, None),
        ("ReplicaSet", {"replicas": 0, "availableReplicas": 1},
         "status.availableReplicas: Invalid value: 1: cannot be greater than status.replicas"),
    ],
)  # fmt: skip
def test_a_workloads_status(kind: str, status: dict[str, Any], says: str | None) -> None:
    new = changed(kind, {"status": status})
    assert update_complaint(kind, new, changed(kind), "status") == says


def test_a_collision_is_counted_up_only() -> None:
    new = changed("Deployment", {"status.collisionCount": 1})
    old = changed("Deployment", {"status.collisionCount": 2})
    assert update_complaint("Deployment", new, old, "status") == (
        "status.collisionCount: Invalid value: 1: cannot be decremented"
    )
