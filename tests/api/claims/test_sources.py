"""Sources of volumes have their names in the API."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.claims.pod_claims import source_kind
from moorage.api.persistent_volumes import PersistentVolumeSpec

_OTHERS = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteOnce"],
    "claimRef": {"name": "c"},
    "persistentVolumeReclaimPolicy": "Retain",
    "storageClassName": "s",
    "mountOptions": ["ro"],
    "volumeMode": "Block",
    "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
    "volumeAttributesClassName": "gold",
}


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ({"hostPath": {"path": "/x"}}, "hostPath"),
        ({"local": {"path": "/x"}}, "local"),
        ({"csi": {"driver": "d", "volumeHandle": "h"}}, "csi"),
        ({}, "unknown"),
    ],
)
def test_a_source_is_named_whatever_else_the_volume_states(
    source: dict[str, Any], kind: str
) -> None:
    assert source_kind(msgspec.convert({**_OTHERS, **source}, PersistentVolumeSpec)) == kind
