"""VolumeAttachments."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    creations,
    decoded,
    update_complaint,
)

KIND = "VolumeAttachment"
SOURCE = "spec.source"
INLINE = f"{SOURCE}.inlineVolumeSpec"
NAME = f"{SOURCE}.persistentVolumeName"
CSI = {"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}}
ONE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


test_rules = creations(KIND, cases=[
    ({}, None),
    ({"spec.attacher": ""}, "spec.attacher: Required value"),
    ({"spec.attacher": "a_b"}, 'spec.attacher: Invalid value: "a_b": a lowercase RFC 1123'),
    ({"spec.nodeName": "a_b"}, 'spec.nodeName: Invalid value: "a_b": a lowercase RFC 1123'),
    ({SOURCE: {}}, f"{SOURCE}: Required value: {ONE}"),
    ({INLINE: CSI}, f"{SOURCE}: Forbidden: {ONE}"),
    ({NAME: "a_b"}, f'{NAME}: Invalid value: "a_b": a lowercase RFC 1123'),
    ({SOURCE: {"inlineVolumeSpec": CSI}}, None),
    ({SOURCE: {"inlineVolumeSpec": {**CSI, "capacity": {"storage": "1Gi"}}}},
     f"{INLINE}.capacity: Forbidden: may not be specified in the context of inline volumes"),
    ({SOURCE: {"inlineVolumeSpec": {**CSI, "storageClassName": "s"}}},
     f"{INLINE}.storageClassName: Forbidden: may not be specified in the context of inline"),
    ({SOURCE: {"inlineVolumeSpec": {**CSI, "volumeMode": "Block"}}},
     f"{INLINE}.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in "
     "the context of inline volumes"),
    ({SOURCE: {"inlineVolumeSpec": {**CSI, "persistentVolumeReclaimPolicy": "Delete"}}},
     f"{INLINE}.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context"),
    ({SOURCE: {"inlineVolumeSpec": {"accessModes": CSI["accessModes"],
                                    "hostPath": {"path": "/a"}}}},
     f"{INLINE}.csi: Required value: has to be specified in the context of inline volumes"),
])  # fmt: skip


def test_the_specification_stays() -> None:
    says = update_complaint(KIND, changed(KIND, {"spec.nodeName": "m"}), changed(KIND))
    assert says == (
        'spec: Invalid value: {"Attacher":"disk.example.com","Source":'
        '{"PersistentVolumeName":"v","InlineVolumeSpec":null},"NodeName":"m"}: field is immutable'
    )


def test_nothing_is_attached_at_first() -> None:
    attachment = decoded(KINDS[KIND], changed(KIND, {"status": {"attached": True}}))
    KINDS[KIND].strategy.prepare_create(attachment)
    assert attachment["status"] == {"attached": False}


def test_an_inline_volume_gets_defaults() -> None:
    inline = {"accessModes": ["ReadWriteOnce"], "iscsi": {"lun": 1}}
    attachment = decoded(KINDS[KIND], changed(KIND, {SOURCE: {"inlineVolumeSpec": inline}}))
    source = attachment["spec"]["source"]["inlineVolumeSpec"]["iscsi"]
    assert source["iscsiInterface"] == "default"


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"attached": True, "attachmentMetadata": {"a": "b"}}, None),
        ({"attachError": {"message": "m" * 1024, "errorCode": 0}}, None),
        ({"attachmentMetadata": {"a": "b" * 256 * 1024}},
         "status.attachmentMetadata: Too long: may not be more than 262144 bytes"),
        ({"detachError": {"message": "m" * 1025}},
         "status.detachError.message: Too long: may not be more than 262144 bytes"),
        ({"attachError": {"errorCode": -1}},
         "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, "
         "inclusive"),
    ],
)  # fmt: skip
def test_rules_of_the_status(status: dict[str, Any], says: str | None) -> None:
    new = changed(KIND, {"status": status})
    assert update_complaint(KIND, new, changed(KIND), "status") == says


def test_the_status_endpoint_writes_the_status_alone() -> None:
    old = decoded(KINDS[KIND], changed(KIND))
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    new["spec"]["nodeName"] = "m"
    new["status"] = {"attached": True}
    KINDS[KIND].strategy.parts["status"].prepare(new, old)
    assert new == {**old, "status": {"attached": True}}


def test_row() -> None:
    assert columns(KIND) == "Name Attacher PV Node Attached Age |"
    assert row(KIND, {}) == ["x", "", "", "", False, "90s"]
    spec = {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    status = {"attached": True}
    assert row(KIND, {"spec": spec, "status": status}) == ["x", "d", "v", "n", True, "90s"]
