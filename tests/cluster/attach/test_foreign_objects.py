"""Objects in a namespace of ours: which are of others."""

from __future__ import annotations

import pytest

from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.cluster.attach.foreign_objects import is_foreign_object
from moorage.cluster.attach.manifests.identity import labels


@pytest.mark.parametrize(
    ("kind", "meta", "expected"),
    [
        ("Secret", ObjectMeta(name="mine"), True),
        ("PersistentVolumeClaim", ObjectMeta(name="data"), True),
        ("ConfigMap", ObjectMeta(name="settings"), True),
        ("ServiceAccount", ObjectMeta(name="robot"), True),
        ("Secret", ObjectMeta(name="sh.helm.release.v1.other.v1"), True),
        ("Secret", ObjectMeta(name="part", labels={"app.kubernetes.io/part-of": "moorage"}), True),
        ("Secret", ObjectMeta(name="moorage-webhook-tls"), False),
        ("Lease", ObjectMeta(name="moorage-controllers"), False),
        ("Endpoints", ObjectMeta(name="moorage-webhook", labels=labels()), False),
        ("ConfigMap", ObjectMeta(name="kube-root-ca.crt"), False),
        ("ServiceAccount", ObjectMeta(name="default"), False),
        ("Event", ObjectMeta(name="any"), False),
        ("Pod", ObjectMeta(name="probe", labels={"runtime.moorage.dev/probe": "a"}), False),
        ("ReplicaSet", ObjectMeta(name="x", owner_references=(OwnerReference(name="d"),)), False),
    ],
)
def test_what_is_of_others(kind: str, meta: ObjectMeta, expected: bool) -> None:
    assert is_foreign_object(kind, meta) is expected
