"""Validation of new pods and of changes to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver.registry.rules import changed, complaint, creations, update_complaint

test_creation = creations("Pod", cases=[
    ({"spec.containers[0].resources": {"requests": {"cpu": "1"}},
             "spec.resources": {"requests": {"cpu": "500m"}}},
     'spec.resources.requests[cpu]: Invalid value: "500m": must be greater than or equal to '
     "aggregate container requests of 1"),
    ({"spec.resources": {"limits": {"example.com/x": "1"}}},
     'spec.resources.limits[example.com/x]: Unsupported value: "example.com/x": supported '
     'values: "cpu", "hugepages-", "memory"'),
    ({"spec.volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
             "spec.containers[0].volumeDevices": [{"name": "v", "devicePath": "/dev/../x"}]},
     'spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/dev/../x": can not '
     "contain backsteps ('..')"),
    ({"spec.volumes": [{"name": "v", "emptyDir": {}}],
             "spec.containers[0].volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]},
     'spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source '
     "type of PersistentVolumeClaim or Ephemeral for block mode"),
    ({"spec.containers[0].lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}, None),
    ({"spec.containers[0].env": [{"name": "a", "valueFrom": {"resourceFieldRef": {
        "resource": "limits.memory", "divisor": "3Mi"}}}]},
     "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "
     "\"limits.memory\": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, "
     "1Pi, 1Ei are supported with the memory resource"),
    ({"spec.dnsConfig": {"searches": ["a_b.c.", "."]}}, None),
])  # fmt: skip


C = "spec.containers[0]"
GATED: dict[str, Any] = {"spec.schedulingGates": [{"name": "a"}]}
X, Y = ({"key": key, "operator": "Exists"} for key in "xy")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"


def on_terms(*terms: list[dict[str, str]]) -> dict[str, Any]:
    """Return an affinity whose terms have these expressions."""
    listed = [{"matchExpressions": term} if term else {} for term in terms]
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": listed}}}


def shown(*terms: list[dict[str, str]]) -> str:
    return json.dumps([{"matchExpressions": term} for term in terms], separators=(",", ":"))


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
        (GATED, {**GATED, "spec.affinity": on_terms([X])}),
        ({**GATED, "spec.affinity": on_terms([X])}, {"spec.affinity": on_terms([X, Y])}),
        ({**GATED, "spec.affinity": {**on_terms([X]), "podAffinity": {}}},
         {"spec.affinity": {**on_terms([X, Y]), "podAffinity": {}}}),
        ({"spec.initContainers": [{"name": "i", "image": "a"}]},
         {"spec.initContainers": [{"name": "i", "image": "b"}]}),
    ],
)  # fmt: skip
def test_what_may_change_in_a_pod(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert update_complaint("Pod", changed("Pod", after), changed("Pod", before)) is None


POD = "pod updates may not change fields other than"


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
        ({}, {"spec.affinity": on_terms([X])}, "Affinity"),
        (GATED, {**GATED, "spec.affinity": {"podAffinity": {}}}, "Affinity"),
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
    assert "None" not in says


def test_a_refused_change_shows_both_values_as_json() -> None:
    says = update_complaint("Pod", changed("Pod", {"spec.hostNetwork": True}), changed("Pod", {}))
    assert says is not None
    assert says.endswith('\n- "HostNetwork": null,\n+ "HostNetwork": true,\n')


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({**GATED, "spec.nodeSelector": {"x": "y"}}, {**GATED, "spec.nodeSelector": {"x": "z"}},
         'spec.nodeSelector: Invalid value: {"x":"z"}: only additions to spec.nodeSelector are '
         "allowed (no mutations or deletions)"),
        ({**GATED, "spec.affinity": on_terms([X])}, GATED,
         f"{TERMS}: Invalid value: []: no additions/deletions to non-empty NodeSelectorTerms list "
         "are allowed"),
        ({**GATED, "spec.affinity": on_terms([X])}, {"spec.affinity": on_terms([X], [Y])},
         f"{TERMS}: Invalid value: {shown([X], [Y])}: no additions/deletions to non-empty "
         "NodeSelectorTerms list are allowed"),
        ({**GATED, "spec.affinity": on_terms([X])}, {"spec.affinity": on_terms([Y, X])},
         f"{TERMS}[0]: Invalid value: {shown([Y, X])[1:-1]}: only additions are allowed (no "
         "mutations or deletions)"),
        ({**GATED, "spec.affinity": on_terms([])}, {"spec.affinity": on_terms([X])},
         f"{TERMS}[0]: Invalid value: {shown([X])[1:-1]}: only additions are allowed (no mutations "
         "or deletions)"),
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


MIRROR = "kubernetes.io/config.mirror"
APPARMOR = "container.apparmor.security.beta.kubernetes.io/app"


@pytest.mark.parametrize("part", ["", "status"])
@pytest.mark.parametrize(
    ("key", "before", "after", "says"),
    [
        (MIRROR, None, "x", "may not add mirror pod annotation"),
        (MIRROR, "x", "y", "may not remove or update mirror pod annotation"),
        (MIRROR, "x", None, "may not remove or update mirror pod annotation"),
        (APPARMOR, None, "unconfined", "may not add AppArmor annotations"),
        (APPARMOR, "unconfined", None, "may not remove or update AppArmor annotations"),
        (MIRROR, "x", "x", None),
        ("a", "x", "y", None),
    ],
)
def test_annotations_that_never_change(
    part: str, key: str, before: str | None, after: str | None, says: str | None
) -> None:
    old, new = (
        changed(
            "Pod", {"spec.nodeName": "n", "metadata.annotations": {key: value} if value else {}}
        )
        for value in (before, after)
    )
    expected = says and f"metadata.annotations[{key}]: Forbidden: {says}"
    assert update_complaint("Pod", new, old, part) == expected


def test_a_mirror_is_bound_to_a_node() -> None:
    sets = {"metadata.annotations": {MIRROR: "x"}}
    says = complaint("Pod", changed("Pod", sets)) or ""
    assert says.partition(" is invalid: ")[2] == (
        f'metadata.annotations[{MIRROR}]: Invalid value: "x": must set spec.nodeName if mirror '
        "pod annotation is set"
    )
    assert complaint("Pod", changed("Pod", {**sets, "spec.nodeName": "n"})) is None


def test_many_tolerations_may_be_added_to_and_reordered() -> None:
    tolerations = [{"key": f"k{index}", "operator": "Exists"} for index in range(20_000)]
    old = changed("Pod", {"spec.tolerations": tolerations})
    more = [{"key": "more", "operator": "Exists"}, *reversed(tolerations)]
    assert update_complaint("Pod", changed("Pod", {"spec.tolerations": more}), old) is None
    fewer = changed("Pod", {"spec.tolerations": tolerations[:-1]})
    assert "existing toleration can not" in (update_complaint("Pod", fewer, old) or "")
