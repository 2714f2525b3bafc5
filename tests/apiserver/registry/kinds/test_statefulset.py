"""StatefulSets."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import WORKLOAD, columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    complaint,
    creations,
    decoded,
    update_complaint,
    updates,
)

KIND = "StatefulSet"
STRATEGY = "spec.updateStrategy"
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {}}
CLAIM: Obj = {
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
CLAIMS = "spec.volumeClaimTemplates"
CLAIM_SPEC = f"{CLAIMS}[0].spec"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"
MISMATCH = (
    'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template '
    "`labels`"
)


def test_defaults() -> None:
    spec = decoded(KINDS[KIND], changed(KIND, {CLAIMS: [CLAIM]}))["spec"]
    assert spec.pop("template")["spec"]["dnsPolicy"] == "ClusterFirst"
    assert spec == {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "serviceName": "",
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"partition": 0, "maxUnavailable": 1},
        },
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "revisionHistoryLimit": 10,
        "volumeClaimTemplates": [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data"},
                "spec": {**CLAIM["spec"], "volumeMode": "Filesystem"},
                "status": {"phase": "Pending"},
            }
        ],
    }


@pytest.mark.parametrize(
    ("strategy", "filled"),
    [
        ({"type": "RollingUpdate"}, {"type": "RollingUpdate"}),
        ({"type": "OnDelete"}, {"type": "OnDelete"}),
        (ROLLING, {"type": "RollingUpdate",
                   "rollingUpdate": {"partition": 0, "maxUnavailable": 1}}),
    ],
)  # fmt: skip
def test_a_named_strategy_keeps_its_parameters(strategy: Any, filled: Any) -> None:
    spec = decoded(KINDS[KIND], changed(KIND, {STRATEGY: strategy}))["spec"]
    assert spec["updateStrategy"] == filled


test_creation = creations(KIND, is_exact=True, cases=[
    ({"metadata.name": "a.b"}, 'metadata.name: Invalid value: "a.b": must not contain dots'),
    ({"spec.podManagementPolicy": "X"},
     "spec.podManagementPolicy: Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'"),
    ({STRATEGY: {"type": "Recreate", "rollingUpdate": {"partition": 2}}},
     'spec.updateStrategy: Invalid value: {"Type":"Recreate","RollingUpdate":{"Partition":2,'
     "\"MaxUnavailable\":null}}: must be 'RollingUpdate' or 'OnDelete'"),
    ({STRATEGY: {"type": "OnDelete", "rollingUpdate": {}}},
     'spec.updateStrategy.rollingUpdate: Invalid value: {"Partition":0,"MaxUnavailable":null}: '
     "only allowed for updateStrategy 'RollingUpdate'"),
    ({STRATEGY: {"rollingUpdate": {"partition": -1}}},
     f"spec.updateStrategy.rollingUpdate.partition: {NEGATIVE}"),
    ({STRATEGY: {"rollingUpdate": {"maxUnavailable": "0%"}}},
     'spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "0%": cannot be 0'),
    ({STRATEGY: {"rollingUpdate": {"maxUnavailable": -1}}},
     f"spec.updateStrategy.rollingUpdate.maxUnavailable: {NEGATIVE}"),
    ({STRATEGY: {"rollingUpdate": {"maxUnavailable": "101%"}}},
     'spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be '
     "greater than 100%"),
    ({STRATEGY: {"rollingUpdate": {"maxUnavailable": "7"}}},
     f'spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "7": {PERCENT}'),
    ({STRATEGY: {"rollingUpdate": {"maxUnavailable": "x"}}},
     f'[spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "x": {PERCENT}, '
     'spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "x": cannot be 0]'),
    ({"spec.persistentVolumeClaimRetentionPolicy": {"whenDeleted": "X", "whenScaled": "Y"}},
     "[" + ", ".join(
         f'spec.persistentVolumeClaimRetentionPolicy.{field}: Unsupported value: "{value}": '
         'supported values: "Retain", "Delete"'
         for field, value in (("whenDeleted", "X"), ("whenScaled", "Y"))) + "]"),
    ({"spec.replicas": -1}, f"spec.replicas: {NEGATIVE}"),
    ({"spec.minReadySeconds": -1}, f"spec.minReadySeconds: {NEGATIVE}"),
    ({"spec.ordinals": {"start": -1}}, f"spec.ordinals.start: {NEGATIVE}"),
    ({"spec.serviceName": "A"}, f'spec.serviceName: Invalid value: "A": {LABEL}'),
    ({"spec.selector": {}},
     "spec.selector: Invalid value: {}: empty selector is invalid for statefulset"),
    ({"spec.selector": None}, f"[spec.selector: Required value, {MISMATCH}]"),
    ({"spec.selector.matchLabels": {"x": "y"}}, MISMATCH),
    ({"spec.selector": {"matchExpressions": [{"key": "a", "operator": "X"}]}},
     '[spec.selector.matchExpressions[0].operator: Invalid value: "X": not a valid selector '
     'operator, spec.selector: Invalid value: {"matchExpressions":[{"key":"a",'
     '"operator":"X"}]}]'),
    ({"spec.template.metadata.labels": {"a": "b", "c": "-"}},
     f'spec.template.metadata.labels: Invalid value: "-": {LABEL_VALUE}'),
    ({"spec.template.spec.restartPolicy": "Never"},
     'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: '
     '"Always"'),
    ({"spec.template.spec.activeDeadlineSeconds": 5},
     "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in "
     "StatefulSet is not Supported"),
])  # fmt: skip


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"accessModes": []},
         "accessModes: Required value: at least 1 access mode is required"),
        ({"accessModes": ["X"]},
         'accessModes: Unsupported value: "X": supported values: "ReadOnlyMany", "ReadWriteMany", '
         '"ReadWriteOnce", "ReadWriteOncePod"'),
        ({"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]},
         "accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"),
        ({"selector": {"matchLabels": {"a": "-"}}},
         f'selector.matchLabels: Invalid value: "-": {LABEL_VALUE}'),
        ({"resources": {}}, "resources[storage]: Required value"),
        ({"resources": {"requests": {"storage": "0"}}},
         'resources[storage]: Invalid value: "0": must be greater than zero'),
        ({"volumeMode": "X"},
         'volumeMode: Unsupported value: "X": supported values: "Block", "Filesystem"'),
        ({"dataSource": {"kind": "X", "name": "n"}},
         "dataSource: Invalid value: \"X\": must be 'PersistentVolumeClaim' when referencing the "
         "default apiGroup"),
        ({"dataSourceRef": {"kind": "X", "name": "", "apiGroup": "g"}},
         "dataSourceRef.name: Required value"),
        ({"dataSourceRef": {"kind": "X", "name": "n", "apiGroup": "g", "namespace": "N"}},
         f'dataSourceRef.namespace: Invalid value: "N": {LABEL}'),
    ],
)  # fmt: skip
def test_volume_claims(sets: dict[str, Any], says: str) -> None:
    obj = changed(KIND, {CLAIMS: [{**CLAIM, "spec": CLAIM["spec"] | sets}]})
    error = complaint(KIND, obj)
    assert error is not None
    assert error.partition(" is invalid: ")[2] == f"{CLAIM_SPEC}.{says}"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ({"namespace": "n"}, "may not be specified when dataSourceRef.namespace is specified"),
        ({"name": "other"}, "must match dataSourceRef"),
    ],
)
def test_two_sources_of_a_claim_must_agree(reference: dict[str, str], says: str) -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "x"}
    claim = {
        **CLAIM,
        "spec": {**CLAIM["spec"], "dataSource": source, "dataSourceRef": source | reference},
    }
    error = complaint(KIND, changed(KIND, {CLAIMS: [claim]}))
    assert error is not None
    assert error.endswith(f"{CLAIM_SPEC}: Invalid value: {{}}: {says}")


def test_a_container_mounts_the_volume_of_a_claim() -> None:
    mounts = {"spec.template.spec.containers[0].volumeMounts": [
        {"name": "data", "mountPath": "/data"}]}  # fmt: skip
    assert complaint(KIND, changed(KIND, {**mounts, CLAIMS: [CLAIM]})) is None
    error = complaint(KIND, changed(KIND, mounts))
    assert error is not None
    assert error.endswith('volumeMounts[0].name: Not found: "data"')


def test_a_claim_replaces_a_volume_of_its_name() -> None:
    volumes = {"spec.template.spec.volumes": [{"name": "data", "hostPath": {"path": ""}}]}
    assert complaint(KIND, changed(KIND, {**volumes, CLAIMS: [CLAIM]})) is None
    assert complaint(KIND, changed(KIND, volumes)) is not None


def test_host_names_of_the_template_are_not_used() -> None:
    sets = {"spec.template.spec.hostname": "A", "spec.template.spec.subdomain": "B"}
    assert complaint(KIND, changed(KIND, sets)) is None


test_update = updates(KIND, cases=[
    ({}, {"spec.replicas": 7, "spec.minReadySeconds": 3, "spec.ordinals": {"start": 1}}, None),
    ({}, {"spec.replicas": -1}, f"spec.replicas: {NEGATIVE}"),
    ({}, {"spec.selector.matchLabels": {"x": "y"}, "spec.template.metadata.labels": {"x": "y"}},
     'spec.selector: Invalid value: {"matchLabels":{"x":"y"}}: field is immutable'),
    ({"spec.serviceName": "A"}, {"spec.serviceName": "B"},
     'spec.serviceName: Invalid value: "B": field is immutable'),
    ({}, {"spec.podManagementPolicy": "Parallel"},
     'spec.podManagementPolicy: Invalid value: "Parallel": field is immutable'),
    ({CLAIMS: [CLAIM]}, {}, "spec.volumeClaimTemplates: Invalid value: null: field is "
                            "immutable"),
    ({CLAIMS: [{**CLAIM, "spec": {}}]}, {CLAIMS: [{**CLAIM, "spec": {}}]}, None),
    ({"spec.template.spec.nodeName": "-"}, {"spec.template.spec.nodeName": "-"}, None),
])  # fmt: skip


def test_a_changed_claim_is_shown_in_go_names() -> None:
    changed_claim = {**CLAIM, "spec": {**CLAIM["spec"], "volumeName": "v"}}
    new, old = changed(KIND, {CLAIMS: [changed_claim]}), changed(KIND, {CLAIMS: [CLAIM]})
    assert update_complaint(KIND, new, old) == (
        'spec.volumeClaimTemplates: Invalid value: [{"name":"data","Spec":{"AccessModes":'
        '["ReadWriteOnce"],"Selector":null,"Resources":{"Limits":null,"Requests":{"storage":"1Gi"}}'
        ',"VolumeName":"v","StorageClassName":null,"VolumeMode":"Filesystem","DataSource":null,'
        '"DataSourceRef":null,"VolumeAttributesClassName":null},"Status":{"Phase":"Pending",'
        '"AccessModes":null,"Capacity":null,"Conditions":null,"AllocatedResources":null,'
        '"AllocatedResourceStatuses":null,"CurrentVolumeAttributesClassName":null,'
        '"ModifyVolumeStatus":null}}]: field is immutable'
    )


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "currentReplicas": 3}, None),
        ({"replicas": 1, "currentReplicas": 2},
         "status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas"),
        ({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2},
         "status.availableReplicas: Invalid value: 2: cannot be greater than status.readyReplicas"),
        ({"observedGeneration": -1}, f"status.observedGeneration: {NEGATIVE}"),
        ({"replicas": -1},
         f"[status.replicas: {NEGATIVE}, " + ", ".join(
             f"status.{field}: Invalid value: 0: cannot be greater than status.replicas"
             for field in ("readyReplicas", "currentReplicas", "updatedReplicas",
                           "availableReplicas")) + "]"),
    ],
)  # fmt: skip
def test_status(status: dict[str, Any], says: str | None) -> None:
    new = changed(KIND, {"status": status, "spec.replicas": 9})
    assert update_complaint(KIND, new, changed(KIND), "status") == says


def test_a_collision_is_counted_up_only() -> None:
    new, old = changed(KIND), changed(KIND, {"status.collisionCount": 2})
    assert update_complaint(KIND, new, old, "status") == (
        "status.collisionCount: Invalid value: 0: cannot be decremented"
    )


def test_warnings() -> None:
    storage = {"requests": {"storage": "100m"}, "limits": {"storage": "2500m"}}
    sets = {
        "spec.revisionHistoryLimit": -1,
        CLAIMS: [{**CLAIM, "spec": {**CLAIM["spec"], "resources": storage}}],
    }
    obj = decoded(KINDS[KIND], changed(KIND, sets))
    history = (
        "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= "
        "0 is recommended"
    )
    warn = KINDS[KIND].strategy.warn
    for old, inner in ((None, ""), (obj, ".Spec")):
        path = f"{CLAIMS}[0]{inner}.resources"
        assert warn(obj, old) == [
            f'{path}.requests[storage]: fractional byte value "100m" is invalid, must be an '
            "integer",
            f'{path}.limits[storage]: fractional byte value "2500m" is invalid, must be an integer',
            history,
        ]
    assert warn(decoded(KINDS[KIND], changed(KIND, {CLAIMS: [CLAIM]})), None) == []


def test_row() -> None:
    fields = {"spec": WORKLOAD, "status": {"readyReplicas": 2}}
    assert row(KIND, fields) == ["x", "2/3", "90s", "a,b", "i:1,j"]


def test_columns() -> None:
    assert columns(KIND) == "Name Ready Age | Containers Images"
