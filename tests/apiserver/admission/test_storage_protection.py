"""Finalizers of what storage uses."""

from __future__ import annotations

import pytest

from moorage.apiserver.admission.persistent_volume_claims import StorageObjectInUseProtection
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds.persistentvolume import PERSISTENT_VOLUME
from moorage.apiserver.registry.kinds.persistentvolumeclaim import PERSISTENT_VOLUME_CLAIM
from moorage.apiserver.registry.kinds.storage import VOLUME_ATTRIBUTES_CLASS
from tests.apiserver.admission.writes import admit, write

PLUGIN = StorageObjectInUseProtection()


@pytest.mark.parametrize(
    ("kind", "finalizer"),
    [
        (PERSISTENT_VOLUME_CLAIM, "kubernetes.io/pvc-protection"),
        (PERSISTENT_VOLUME, "kubernetes.io/pv-protection"),
        (VOLUME_ATTRIBUTES_CLASS, "kubernetes.io/vac-protection"),
    ],
)
def test_new_objects_get_their_finalizer_once(kind: Kind, finalizer: str) -> None:
    plain = admit(PLUGIN, write(kind, {"metadata": {"name": "x"}}))
    assert plain["metadata"]["finalizers"] == [finalizer]
    own = {"metadata": {"name": "x", "finalizers": ["example.com/a"]}}
    assert admit(PLUGIN, write(kind, own))["metadata"]["finalizers"] == [
        "example.com/a", finalizer,
    ]  # fmt: skip
    assert admit(PLUGIN, write(kind, plain))["metadata"]["finalizers"] == [finalizer]


def test_later_writes_are_not_looked_at() -> None:
    assert not PLUGIN.scope.covers("persistentvolumes", "", "UPDATE")
    assert not PLUGIN.scope.covers("persistentvolumes", "status", "UPDATE")
