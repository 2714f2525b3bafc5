"""Objects in a namespace of ours: which are of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.client.config import ClientConfig
from moorage.client.rest import Client
from moorage.cluster.attach.foreign_objects import foreign_objects, is_foreign_object
from moorage.cluster.attach.manifests.identity import labels
from tests.apiserver.server import serving


def owned(api_version: str, kind: str) -> ObjectMeta:
    owner = OwnerReference(api_version=api_version, kind=kind, name="d")
    return ObjectMeta(name="x", owner_references=(owner,))


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
        ("Pod", ObjectMeta(name="probe", labels={"runtime.moorage.dev/probe": "a"}), False),
        ("ReplicaSet", owned("apps/v1", "Deployment"), False),
        ("PersistentVolumeClaim", owned("v1", "Node"), True),
        ("ConfigMap", owned("apps/v1beta9", "Deployment"), False),
        ("ConfigMap", owned("example.com/v1", "Deployment"), True),
    ],
)
def test_what_is_of_others(kind: str, meta: ObjectMeta, expected: bool) -> None:
    namespaced = {("apps", "Deployment"), ("", "Pod")}
    assert is_foreign_object(kind, meta, namespaced) is expected


async def test_what_an_object_outside_of_the_namespace_owns_is_found(tmp_path: Path) -> None:
    collection = "/api/v1/namespaces/default/configmaps"
    owner = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "name": "a", "uid": "u"}
    inside = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "v"}
    async with serving(tmp_path) as server:
        for name, references in (("settings", [owner]), ("mine", []), ("part", [inside])):
            body = {"metadata": {"name": name, "ownerReferences": references}}
            assert (await server.ask("POST", collection, body)).status == 201
        event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
        place = "/api/v1/namespaces/default/events"
        assert (await server.ask("POST", place, event)).status == 201
        config = ClientConfig(
            server=server.url,
            ca=server.authority.pair.certificate.read_bytes(),
            token="admin-token",
        )
        async with Client(config, user_agent="test") as client:
            found = await foreign_objects(client, "default")
    assert [one for one in found if not one.startswith(("Service ", "Endpoint"))] == [
        "ConfigMap mine",
        "ConfigMap settings",
    ]
