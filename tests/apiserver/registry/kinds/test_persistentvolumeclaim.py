"""PersistentVolumeClaims."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "PersistentVolumeClaim"
STRATEGY = KINDS[KIND].strategy
STORAGE = "spec.resources.requests.storage"
CLASS = "volume.beta.kubernetes.io/storage-class"
ATTRIBUTES = "spec.volumeAttributesClassName"
BOUND = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
IMMUTABLE = (
    "spec: Forbidden: spec is immutable after creation except resources.requests and "
    "volumeAttributesClassName for bound claims"
)
SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
POPULATOR = {"apiGroup": "example.com", "kind": "Populator", "name": "p"}


def bound(sets: dict[str, Any] | None = None, *drops: str) -> Obj:
    return changed(KIND, {"status": BOUND, "spec.volumeName": "v", **(sets or {})}, *drops)


def refusals(new: Obj, old: Obj) -> list[str]:
    """The errors of an update, without the lines that show a difference."""
    after, before = decoded(KINDS[KIND], new), decoded(KINDS[KIND], old)
    STRATEGY.prepare_update(after, before)
    return [str(error).splitlines()[0] for error in STRATEGY.validate_update(after, before)]


def test_defaults() -> None:
    claim = decoded(KINDS[KIND], changed(KIND, {STORAGE: "1500u"}))
    assert claim["spec"]["volumeMode"] == "Filesystem"
    assert claim["status"] == {"phase": "Pending"}
    assert claim["spec"]["resources"]["requests"] == {"storage": "2m"}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, None),
        ({"spec.storageClassName": ""}, None),
        ({"spec.accessModes": []},
         "spec.accessModes: Required value: at least 1 access mode is required"),
        ({STORAGE: "0"}, 'spec.resources[storage]: Invalid value: "0": must be greater than zero'),
        ({"spec.resources": {}}, "spec.resources[storage]: Required value"),
        ({"spec.storageClassName": "a_b"},
         'spec.storageClassName: Invalid value: "a_b": a lowercase RFC 1123 subdomain'),
        ({"spec.selector": {"matchLabels": {"a": "b c"}}},
         'spec.selector.matchLabels: Invalid value: "b c": a valid label must'),
        ({"spec.dataSourceRef": {"kind": "Pod", "name": "p"}},
         "spec.dataSource: Invalid value: \"Pod\": must be 'PersistentVolumeClaim' when "
         "referencing the default apiGroup"),
        ({"spec.dataSourceRef": POPULATOR, "spec.dataSource": SNAPSHOT},
         "spec: Invalid value: {}: must match dataSourceRef"),
        ({ATTRIBUTES: ""}, None),
    ],
)  # fmt: skip
def test_rules(sets: dict[str, Any], says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, sets))
    if says is None:
        assert refusal is None
        return
    says_all = f'PersistentVolumeClaim "c" is invalid: {says}'
    assert str(refusal).replace("is invalid: [", "is invalid: ").startswith(says_all)


@pytest.mark.parametrize(
    ("sources", "kept"),
    [
        ({}, {}),
        ({"dataSource": SNAPSHOT}, {"dataSource": SNAPSHOT, "dataSourceRef": SNAPSHOT}),
        ({"dataSourceRef": POPULATOR}, {"dataSource": POPULATOR, "dataSourceRef": POPULATOR}),
        ({"dataSource": POPULATOR}, {}),
        ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "c"}},
         {"dataSource": {"kind": "PersistentVolumeClaim", "name": "c"},
          "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "c"}}),
        ({"dataSourceRef": {**SNAPSHOT, "namespace": "other"}}, {}),
        ({"dataSourceRef": {**SNAPSHOT, "namespace": ""}},
         {"dataSource": SNAPSHOT, "dataSourceRef": {**SNAPSHOT, "namespace": ""}}),
    ],
)  # fmt: skip
def test_both_fields_of_a_data_source_are_set(sources: Obj, kept: Obj) -> None:
    claim = decoded(KINDS[KIND], changed(KIND))
    claim["spec"] |= copy.deepcopy(sources)
    STRATEGY.prepare_create(claim)
    found = {key: claim["spec"][key] for key in claim["spec"] if key.startswith("dataSource")}
    assert found == kept


def test_an_old_client_may_leave_out_the_newer_field() -> None:
    both = changed(KIND, {"spec.dataSource": SNAPSHOT, "spec.dataSourceRef": SNAPSHOT})
    assert refusals(changed(KIND, {"spec.dataSource": SNAPSHOT}), both) == []


def test_the_status_of_a_new_claim_is_reset() -> None:
    claim = decoded(KINDS[KIND], bound())
    STRATEGY.prepare_create(claim)
    assert claim["status"] == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("sets", "old_sets"),
    [
        ({"spec.accessModes": ["ReadWriteMany"]}, {}),
        ({"spec.volumeName": "w"}, {"spec.volumeName": "v"}),
        ({"spec.storageClassName": "b"}, {"spec.storageClassName": "a"}),
        ({"spec.selector": {"matchLabels": {"a": "b"}}}, {}),
        ({STORAGE: "2Gi"}, {}),
        ({ATTRIBUTES: "a"}, {}),
    ],
)
def test_the_specification_stays(sets: dict[str, Any], old_sets: dict[str, Any]) -> None:
    assert refusals(changed(KIND, sets), changed(KIND, old_sets)) == [IMMUTABLE]


def test_what_differs_is_shown() -> None:
    says = str(update_complaint(KIND, changed(KIND, {STORAGE: "2Gi"}), changed(KIND)))
    assert [line.strip() for line in says.splitlines() if line[0] in "+-"] == [
        '-   "storage": "1Gi"',
        '+   "storage": "2Gi"',
    ]


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (changed(KIND, {"spec.volumeName": "v"}), changed(KIND)),
        (changed(KIND, {"spec.storageClassName": "a"}), changed(KIND)),
        (changed(KIND, {STORAGE: "1024Mi"}), changed(KIND)),
        (bound({STORAGE: "2Gi"}), bound()),
        (bound({STORAGE: "2Gi"}), bound({STORAGE: "3Gi"})),
        (bound({ATTRIBUTES: "a"}), bound()),
        (bound({ATTRIBUTES: "b"}), bound({ATTRIBUTES: "a"})),
    ],
)
def test_what_may_change(new: Obj, old: Obj) -> None:
    assert refusals(new, old) == []


def test_the_size_stays_above_what_the_volume_has() -> None:
    says = ["spec.resources.requests.storage: Forbidden: field can not be less than "
            "status.capacity"]  # fmt: skip
    assert refusals(bound({STORAGE: "1Gi"}), bound({STORAGE: "3Gi"})) == says
    assert refusals(bound({STORAGE: "1Mi"}), bound()) == says


def test_the_mode_stays() -> None:
    assert refusals(changed(KIND, {"spec.volumeMode": "Block"}), changed(KIND)) == [
        IMMUTABLE,
        'volumeMode: Invalid value: "Block": field is immutable',
    ]


@pytest.mark.parametrize(
    ("annotation", "name", "old_annotation", "says"),
    [
        ("a", None, "a", []),
        (None, "a", "a", []),
        ("a", "a", "a", []),
        (None, "b", "a",
         [f'metadata.annotations.{CLASS}: Invalid value: "": field is immutable', IMMUTABLE]),
        ("b", None, "a", [f'metadata.annotations.{CLASS}: Invalid value: "b": field is immutable']),
    ],
)  # fmt: skip
def test_the_class_may_move_out_of_its_annotation(
    annotation: str | None, name: str | None, old_annotation: str, says: list[str]
) -> None:
    def claim(annotation: str | None, name: str | None) -> Obj:
        sets: dict[str, Any] = {}
        if annotation is not None:
            sets["metadata.annotations"] = {CLASS: annotation}
        if name is not None:
            sets["spec.storageClassName"] = name
        return changed(KIND, sets)

    assert refusals(claim(annotation, name), claim(old_annotation, None)) == says


@pytest.mark.parametrize(("sets", "what"), [({}, "nil"), ({ATTRIBUTES: ""}, "empty string")])
def test_applied_attributes_are_not_taken_away(sets: dict[str, Any], what: str) -> None:
    status = {"status": {**BOUND, "currentVolumeAttributesClassName": "a"}}
    assert refusals(bound({**sets, **status}), bound({ATTRIBUTES: "a", **status})) == [
        f"{ATTRIBUTES}: Forbidden: update to {what} is forbidden when "
        "status.currentVolumeAttributesClassName is not nil"
    ]


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({}, None),
        ({"capacity": {"storage": "-1"}},
         "status.capacity[storage]: Invalid value: -1: must be a valid resource quantity"),
        ({"allocatedResourceStatuses": {"storage": "NodeResizePending"}}, None),
        ({"allocatedResourceStatuses": {"storage": "Soon"}},
         'status.allocatedResourceStatuses: Unsupported value: "storage": supported values: '
         '"ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", '
         '"NodeResizeInfeasible", "NodeResizePending"'),
        ({"allocatedResources": {"cpu": "1"}},
         'status.allocatedResources: Unsupported value: "cpu": supported values: "storage"'),
        ({"allocatedResources": {"example.com/speed": "1"}}, None),
        ({"allocatedResources": {"a b": "1"}},
         'status.allocatedResources: Invalid value: "a b": name part must'),
        ({"allocatedResources": {"storage": "-1"}},
         "status.allocatedResources[storage]: Invalid value: -1: must be a valid resource"),
    ],
)  # fmt: skip
def test_rules_of_the_status(status: dict[str, Any], says: str | None) -> None:
    found = update_complaint(KIND, changed(KIND, {"status": status}), changed(KIND), "status")
    if says is None:
        assert found is None
    else:
        assert str(found).startswith(says)


def test_the_status_endpoint_keeps_the_specification() -> None:
    old = decoded(KINDS[KIND], changed(KIND))
    new = decoded(KINDS[KIND], bound({STORAGE: "9Gi"}))
    STRATEGY.parts["status"].prepare(new, old)
    assert new["spec"] == old["spec"]
    assert new["status"] == BOUND


def test_warnings() -> None:
    sets = {
        "metadata.annotations": {CLASS: "a"},
        "spec.resources": {"requests": {"storage": "1500m"}, "limits": {"storage": "2500m"}},
    }
    fraction = "fractional byte value"
    assert STRATEGY.warn(changed(KIND, sets), None) == [
        f'metadata.annotations[{CLASS}]: deprecated since v1.8; use "storageClassName" attribute '
        "instead",
        f'spec.resources.requests[storage]: {fraction} "1500m" is invalid, must be an integer',
        f'spec.resources.limits[storage]: {fraction} "2500m" is invalid, must be an integer',
    ]
    assert STRATEGY.warn(changed(KIND), None) == []


def test_row() -> None:
    assert columns(KIND) == (
        "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age | "
        "VolumeMode"
    )
    assert row(KIND, {}) == ["x", "", "", "", "", "", "<unset>", "90s", "<unset>"]
    spec = {
        "volumeName": "v", "storageClassName": "s", "volumeAttributesClassName": "a",
        "volumeMode": "Block",
    }  # fmt: skip
    status = {**BOUND, "accessModes": ["ReadWriteMany", "ReadWriteOncePod"]}
    assert row(KIND, {"spec": spec, "status": status}) == [
        "x", "Bound", "v", "1Gi", "RWX,RWOP", "s", "a", "90s", "Block",
    ]  # fmt: skip
    # Without a volume nothing of it is shown.
    cells = row(KIND, {"spec": {**spec, "volumeName": ""}, "status": status})
    assert cells[2:5] == ["", "", ""]
    meta = {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert row(KIND, {"metadata": meta, "status": status})[1] == "Terminating"


@pytest.mark.parametrize(
    ("name", "current", "says"),
    [
        ("b", "a", ""),
        ("a", "a", ""),
        ("", "a", "update to empty string is forbidden when "
         "status.currentVolumeAttributesClassName is not nil"),
        (None, "a", "update to nil is forbidden when "
         "status.currentVolumeAttributesClassName is not nil"),
        ("", None, ""),
    ],
)  # fmt: skip
def test_a_class_of_attributes_that_holds_is_not_dropped(
    name: str | None, current: str | None, says: str
) -> None:
    kind, field = "PersistentVolumeClaim", "volumeAttributesClassName"
    phase: dict[str, Any] = {"phase": "Bound"}
    status = phase | ({"currentVolumeAttributesClassName": current} if current else {})
    old = changed(kind, {f"spec.{field}": "a", "spec.volumeName": "v", "status": status})
    new = changed(kind, {"spec.volumeName": "v", "status": status})
    if name is not None:
        new["spec"][field] = name
    error = update_complaint(kind, new, old)
    assert (error or "") == (f"spec.{field}: Forbidden: {says}" if says else "")
