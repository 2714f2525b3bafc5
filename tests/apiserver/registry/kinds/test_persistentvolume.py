"""PersistentVolumes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "PersistentVolume"
STRATEGY = KINDS[KIND].strategy
STATUS = STRATEGY.parts["status"]
CSI = {"driver": "disk.example.com", "volumeHandle": "h"}
CSI_VOLUME = changed(KIND, {"spec.csi": CSI}, "spec.hostPath")
POLICY = "spec.persistentVolumeReclaimPolicy"
TERM = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}]}
AFFINITY = {"required": {"nodeSelectorTerms": [TERM]}}
ATTRIBUTES = "spec.volumeAttributesClassName"


def test_defaults() -> None:
    volume = decoded(KINDS[KIND], changed(KIND))
    assert volume["spec"] == {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/data", "type": ""},
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    }
    assert volume["status"] == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, None),
        ({"spec.accessModes": []}, "spec.accessModes: Required value"),
        ({"spec.accessModes": ["Some"]},
         'spec.accessModes: Unsupported value: "Some": supported values: "ReadOnlyMany", '
         '"ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"'),
        ({"spec.accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]},
         "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"),
        ({"spec.capacity": {"storage": "1", "cpu": "1"}},
         'spec.capacity: Unsupported value: {"storage":"1","cpu":"1"}: supported values: '
         '"storage"'),
        ({"spec.capacity": {"storage": "0"}},
         'spec.capacity[storage]: Invalid value: "0": must be greater than zero'),
        ({POLICY: "Recycle"}, None),
        ({POLICY: "Keep"},
         f'{POLICY}: Unsupported value: "Keep": supported values: "Delete", "Recycle", "Retain"'),
        ({POLICY: "Recycle", "spec.hostPath.path": "/a/.."},
         'spec.hostPath.path: Invalid value: "/a/..": must not contain \'..\''),
        ({POLICY: "Recycle", "spec.hostPath.path": "/./"},
         f"{POLICY}: Forbidden: may not be 'recycle' for a hostPath mount of '/'"),
        ({"spec.storageClassName": "a_b"},
         'spec.storageClassName: Invalid value: "a_b": a lowercase RFC 1123 subdomain'),
        ({"spec.volumeMode": "Tape"},
         'spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"'),
        ({"spec.nodeAffinity": AFFINITY}, None),
        ({"spec.nodeAffinity": {}},
         "spec.nodeAffinity.required: Required value: must specify required node constraints"),
        ({"spec.nodeAffinity": {"required": {"nodeSelectorTerms": []}}},
         "spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one "
         "node selector term"),
        ({ATTRIBUTES: "a"},
         "spec.csi: Required value: has to be specified when using volumeAttributesClassName"),
        ({"metadata.annotations": {"volume.beta.kubernetes.io/mount-options": "ro"}},
         "metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not "
         "specify mount options for this volume type"),
    ],
)  # fmt: skip
def test_rules(sets: dict[str, Any], says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, sets))
    if says is None:
        assert refusal is None
        return
    says_all = f'PersistentVolume "v" is invalid: {says}'
    assert str(refusal).replace("is invalid: [", "is invalid: ").startswith(says_all)


SOURCES: list[tuple[str, Obj, str | None]] = [
    ("local", {"path": "/a"}, "spec.nodeAffinity: Required value: Local volume requires node "
     "affinity"),
    ("glusterfs", {"endpoints": "e", "path": "p", "endpointsNamespace": ""},
     'spec.glusterfs.endpointsNamespace: Invalid value: "": if the endpointnamespace is set, it '
     "must be a valid namespace name"),
    ("glusterfs", {"endpoints": "e", "path": "p", "endpointsNamespace": "n"}, None),
    ("cinder", {"volumeID": "v", "secretRef": {"name": "s"}},
     "spec.cinder.secretRef.namespace: Required value"),
    ("storageos", {"volumeName": "v", "secretRef": {"name": "s", "namespace": "n"}}, None),
    ("azureFile", {"secretName": "s", "shareName": "s", "secretNamespace": ""},
     "spec.azureFile.secretNamespace: Required value"),
    ("iscsi", {"targetPortal": "p", "iqn": "iqn.2020-01.com.example:a", "lun": 0}, None),
    ("iscsi", {"targetPortal": "p", "iqn": "xyz"},
     'spec.iscsi.iqn: Invalid value: "xyz": must be valid format'),
    ("iscsi", {"targetPortal": "p", "iqn": "eui.0123456789abcdef", "secretRef": {}},
     "spec.iscsi.secretRef.name: Required value"),
    ("iscsi", {"targetPortal": "p" * 63, "iqn": "eui.0123456789abcdef",
               "initiatorName": "eui.0123456789abcdef"},
     f'spec.iscsi.targetportal: Invalid value: "{"p" * 63}": Total length of <volume name>:'
     "<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."),
    ("nfs", {"server": "s", "path": "p"},
     'spec.nfs.path: Invalid value: "p": must be an absolute path'),
    ("csi", {"driver": "d"}, "spec.csi.volumeHandle: Required value"),
    ("csi", {**CSI, "nodePublishSecretRef": {"name": "s"}},
     "spec.csi.nodePublishSecretRef.namespace: Required value"),
    ("csi", {**CSI, "controllerExpandSecretRef": {"name": "s", "namespace": "n"}}, None),
]  # fmt: skip


@pytest.mark.parametrize(("field", "source", "says"), SOURCES)
def test_sources_of_volumes_alone(field: str, source: Obj, says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, {f"spec.{field}": source}, "spec.hostPath"))
    assert refusal == (None if says is None else f'PersistentVolume "v" is invalid: {says}')


def test_a_volume_is_in_one_place() -> None:
    assert complaint(KIND, changed(KIND, {}, "spec.hostPath")) == (
        'PersistentVolume "v" is invalid: spec: Required value: must specify a volume type'
    )
    nfs = {"server": "s", "path": "/p"}
    assert complaint(KIND, changed(KIND, {"spec.nfs": nfs})) == (
        'PersistentVolume "v" is invalid: spec.nfs: Forbidden: may not specify more than 1 volume '
        "type"
    )


def test_its_place_stays() -> None:
    new = changed(KIND, {"spec.hostPath.path": "/other"})
    says = str(update_complaint(KIND, new, changed(KIND)))
    title, *lines = says.splitlines()
    assert title == (
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after "
        "creation"
    )
    assert [line for line in lines if line[0] in "+-"] == [
        '-  "Path": "/data",',
        '+  "Path": "/other",',
    ]


def test_the_secret_for_expansion_may_be_added_once() -> None:
    secret = {"name": "s", "namespace": "n"}
    with_secret = copy.deepcopy(CSI_VOLUME)
    with_secret["spec"]["csi"]["controllerExpandSecretRef"] = secret
    assert update_complaint(KIND, with_secret, CSI_VOLUME) is None
    other = copy.deepcopy(with_secret)
    other["spec"]["csi"]["controllerExpandSecretRef"] = {"name": "t", "namespace": "n"}
    assert "immutable" in str(update_complaint(KIND, other, with_secret))
    assert "immutable" in str(update_complaint(KIND, CSI_VOLUME, with_secret))


def test_the_mode_stays() -> None:
    says = update_complaint(KIND, changed(KIND, {"spec.volumeMode": "Block"}), changed(KIND))
    assert says == 'volumeMode: Invalid value: "Block": field is immutable'


def test_node_affinity_is_set_once() -> None:
    old = changed(KIND, {"spec.nodeAffinity": AFFINITY})
    assert update_complaint(KIND, old, changed(KIND)) is None
    assert update_complaint(KIND, changed(KIND), old) == (
        "nodeAffinity: Invalid value: null: field is immutable, except for updating from beta "
        "label to GA"
    )
    path = "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values"
    assert update_complaint(
        KIND, changed(KIND, {"spec.nodeAffinity": AFFINITY, path: ["m"]}), old
    ) == (
        'nodeAffinity: Invalid value: {"Required":{"NodeSelectorTerms":[{"MatchExpressions":'
        '[{"Key":"kubernetes.io/hostname","Operator":"In","Values":["m"]}],"MatchFields":null}]}}: '
        "field is immutable, except for updating from beta label to GA"
    )


def test_a_beta_label_may_be_replaced_by_its_successor() -> None:
    path = "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key"
    old, new = (
        changed(KIND, {"spec.nodeAffinity": AFFINITY, path: key})
        for key in ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
    )
    assert update_complaint(KIND, new, old) is None
    assert update_complaint(KIND, old, new) is not None


def test_the_class_of_attributes_changes_but_stays_set() -> None:
    old, other = ({**CSI_VOLUME, "spec": {**CSI_VOLUME["spec"], "volumeAttributesClassName": name}}
                  for name in ("a", "b"))  # fmt: skip
    assert update_complaint(KIND, other, old) is None
    assert update_complaint(KIND, CSI_VOLUME, old) == (
        f"{ATTRIBUTES}: Forbidden: update from non-nil value to nil is forbidden"
    )


def test_a_new_volume_is_pending_from_its_creation_on() -> None:
    volume = decoded(KINDS[KIND], changed(KIND, {"status": {"phase": "Bound", "reason": "r"}}))
    volume["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    STRATEGY.prepare_create(volume)
    assert volume["status"] == {
        "phase": "Pending",
        "lastPhaseTransitionTime": "2026-01-01T00:00:00Z",
    }


T1, T2, NOW = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:09Z"


@pytest.mark.parametrize(
    ("before", "after", "since"),
    [
        (("Pending", T1), ("Available", None), NOW),
        (("Pending", T1), ("Available", T1), NOW),
        (("Pending", T1), ("Available", T2), T2),
        (("Bound", T1), ("Bound", None), T1),
        (("Bound", T1), ("Bound", T2), T2),
        (("Bound", None), ("Bound", None), None),
    ],
)
def test_the_status_says_since_when(
    before: tuple[str, str | None], after: tuple[str, str | None], since: str | None
) -> None:
    def status(phase: str, time: str | None) -> Obj:
        return {"phase": phase, **({"lastPhaseTransitionTime": time} if time else {})}

    old, new = changed(KIND, {"status": status(*before)}), changed(KIND, {"status": status(*after)})
    STATUS.prepare(new, old)
    STATUS.stamp(new, old, NOW)
    assert new["status"].get("lastPhaseTransitionTime") == since


def test_warnings() -> None:
    annotations = {
        "volume.beta.kubernetes.io/storage-class": "s",
        "volume.beta.kubernetes.io/mount-options": "ro",
    }
    zone = "failure-domain.beta.kubernetes.io/zone"
    path = "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0]"
    sets = {
        "metadata.annotations": annotations,
        POLICY: "Recycle",
        "spec.nodeAffinity": AFFINITY,
        f"{path}.key": zone,
        "spec.rbd": {},
        "spec.storageos": {},
    }
    assert STRATEGY.warn(changed(KIND, sets), None) == [
        "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; "
        'use "storageClassName" attribute instead',
        "metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31; "
        'use "mountOptions" attribute instead',
        f"{POLICY}: The Recycle reclaim policy is deprecated. Instead, the recommended approach "
        "is to use dynamic provisioning.",
        f'{path}.key: {zone} is deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
        "spec.storageOS: deprecated in v1.22, non-functional in v1.25+",
        "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
    ]


def test_row() -> None:
    assert columns(KIND) == (
        "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass "
        "VolumeAttributesClass Reason Age | VolumeMode"
    )
    assert row(KIND, {}) == ["x", "0", "", "", "", "", "", "<unset>", "", "90s", "<unset>"]
    spec = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadOnlyMany", "ReadWriteOnce", "ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Delete",
        "claimRef": {"namespace": "n", "name": "c"},
        "storageClassName": "s",
        "volumeAttributesClassName": "a",
        "volumeMode": "Block",
    }
    status = {"phase": "Failed", "reason": "Lost"}
    assert row(KIND, {"spec": spec, "status": status}) == [
        "x", "5Gi", "RWO,ROX", "Delete", "Failed", "n/c", "s", "a", "Lost", "90s", "Block",
    ]  # fmt: skip
    meta = {
        "name": "x",
        "deletionTimestamp": T1,
        "annotations": {"volume.beta.kubernetes.io/storage-class": "old"},
    }
    cells = row(KIND, {"metadata": meta, "spec": spec, "status": status})
    assert (cells[4], cells[6]) == ("Terminating", "old")
