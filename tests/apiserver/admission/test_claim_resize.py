"""Claims that grow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError
from moorage.api.persistent_volumes import StorageClass
from moorage.apiserver.admission.persistent_volume_claims import PersistentVolumeClaimResize
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.persistentvolumeclaim import PERSISTENT_VOLUME_CLAIM
from tests.apiserver.admission.writes import admit, write

CLASSES = {
    name: msgspec.convert({"metadata": {"name": name}, **more}, StorageClass)
    for name, more in {
        "grows": {"allowVolumeExpansion": True},
        "fixed": {"allowVolumeExpansion": False},
        "silent": {},
    }.items()
}
PLUGIN = PersistentVolumeClaimResize(CLASSES.get)
NOT_BOUND = "Only bound persistent volume claims can be expanded"
NOT_EXPANDABLE = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "
    "must support resize"
)


def claim(size: str, name: str | None, phase: str = "Bound", annotation: str = "") -> Obj:
    annotations = {"volume.beta.kubernetes.io/storage-class": annotation} if annotation else {}
    spec: dict[str, Any] = {"resources": {"requests": {"storage": size}}}
    if name is not None:
        spec["storageClassName"] = name
    meta = {"name": "c", "namespace": "default", "annotations": annotations}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("new", "old", "why"),
    [
        (claim("2Gi", "grows"), claim("1Gi", "grows"), None),
        (claim("2Gi", None, annotation="grows"), claim("1Gi", None, annotation="grows"), None),
        (claim("1Gi", "fixed"), claim("1024Mi", "fixed"), None),
        (claim("1Gi", "fixed"), claim("2Gi", "fixed"), None),
        (claim("2Gi", "grows"), claim("1Gi", "grows", "Pending"), NOT_BOUND),
        (claim("2Gi", "fixed"), claim("1Gi", "fixed"), NOT_EXPANDABLE),
        (claim("2Gi", "silent"), claim("1Gi", "silent"), NOT_EXPANDABLE),
        (claim("2Gi", "gone"), claim("1Gi", "gone"), NOT_EXPANDABLE),
        (claim("2Gi", ""), claim("1Gi", ""), NOT_EXPANDABLE),
        (claim("2Gi", None), claim("1Gi", None), NOT_EXPANDABLE),
        (claim("2Gi", "grows"), claim("1Gi", "fixed"), NOT_EXPANDABLE),
    ],
)
def test_who_may_grow(new: Obj, old: Obj, why: str | None) -> None:
    attributes = write(PERSISTENT_VOLUME_CLAIM, new, old=old, operation="UPDATE")
    if why is None:
        admit(PLUGIN, attributes)
        return
    with pytest.raises(ForbiddenError) as refusal:
        admit(PLUGIN, attributes)
    assert refusal.value.message == f'persistentvolumeclaims "c" is forbidden: {why}'
