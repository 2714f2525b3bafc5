"""The default class of claims."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.persistent_volumes import StorageClass
from moorage.apiserver.admission.default_classes import DefaultStorageClass
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.persistentvolumeclaim import PERSISTENT_VOLUME_CLAIM
from tests.apiserver.admission.writes import admit, write

DAY = "2026-01-0{}T00:00:00Z"


def storage_class(name: str, day: int, default: str = "true", prefix: str = "") -> StorageClass:
    annotations = {f"storageclass.{prefix}kubernetes.io/is-default-class": default}
    meta = {"name": name, "creationTimestamp": DAY.format(day), "annotations": annotations}
    return msgspec.convert({"metadata": meta}, StorageClass)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([], None),
        ([storage_class("a", 1, "false")], None),
        ([storage_class("a", 1, prefix="beta.")], "a"),
        ([storage_class("a", 1), storage_class("b", 2, "false")], "a"),
        ([storage_class("a", 1), storage_class("b", 2)], "b"),
        ([storage_class("b", 1), storage_class("a", 1)], "a"),
    ],
)
def test_the_newest_default_class_is_set(classes: list[StorageClass], expected: str | None) -> None:
    claim: Obj = {"metadata": {"name": "c"}, "spec": {}}
    after = admit(DefaultStorageClass(lambda: classes), write(PERSISTENT_VOLUME_CLAIM, claim))
    assert after["spec"].get("storageClassName") == expected


@pytest.mark.parametrize(
    "claim",
    [
        {"metadata": {"name": "c"}, "spec": {"storageClassName": "own"}},
        {"metadata": {"name": "c"}, "spec": {"storageClassName": ""}},
        {
            "metadata": {
                "name": "c",
                "annotations": {"volume.beta.kubernetes.io/storage-class": ""},
            },
            "spec": {},
        },
    ],
)
def test_a_class_that_is_named_stays(claim: Obj) -> None:
    before = msgspec.json.encode(claim)
    plugin = DefaultStorageClass(lambda: [storage_class("a", 1)])
    assert msgspec.json.encode(admit(plugin, write(PERSISTENT_VOLUME_CLAIM, claim))) == before
