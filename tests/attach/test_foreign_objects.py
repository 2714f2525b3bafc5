"""Objects in a namespace of ours: which are of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.attach.foreign_objects import foreign_objects, is_foreign_object
from moorage.attach.manifests.identity import labels
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client
from tests.apiserver.running_server import serving
from tests.attach.object_server import running
from tests.wire.client.fake_api import refusal


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
        *(
            (kind, ObjectMeta(name=name), False)
            for kind, names in (
                ("ConfigMap", ("kube-root-ca.crt", "openshift-service-ca.crt",
                               "istio-ca-root-cert")),
                ("ServiceAccount", ("default", "builder", "deployer")),
                ("RoleBinding", ("system:deployers", "system:image-builders",
                                 "system:image-pullers")),
            )
            for name in names
        ),
        ("Secret", ObjectMeta(name="default"), True),
        ("Pod", ObjectMeta(name="probe", labels={"runtime.moorage.dev/probe": "a"}), False),
        ("ReplicaSet", owned("apps/v1", "Deployment"), False),
        ("PersistentVolumeClaim", owned("v1", "Node"), True),
        ("ConfigMap", owned("apps/v1beta9", "Deployment"), False),
        ("ConfigMap", owned("example.com/v1", "Deployment"), True),
    ],
)  # fmt: skip
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


def stored(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", **metadata}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta}


async def test_all_kinds_of_a_namespace_are_listed_by_name() -> None:
    async with running() as (server, client):
        for one in (
            stored("Secret", "b"), stored("ConfigMap", "c"), stored("Secret", "a"),
            stored("Secret", "d"), stored("Event", "e"),
            stored("Secret", "ours", labels=labels()),
            stored("Secret", "elsewhere", namespace="other"),
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ns"}},
        ):  # fmt: skip
            server.put(one)
        found = await foreign_objects(client, "ns")
    assert found == ["ConfigMap c", "Secret a", "Secret b", "Secret d"]


async def test_a_kind_that_cannot_be_listed_counts_as_one() -> None:
    async with running() as (server, client):
        server.put(stored("ConfigMap", "c"))
        path = "/api/v1/namespaces/ns/{}"
        server.failures["GET", path.format("secrets")] = [refusal(403, "Forbidden", "you may not")]
        server.failures["GET", path.format("services")] = [refusal(404, "NotFound")]
        server.failures["GET", "/apis/batch/v1"] = [refusal(503, "Unavailable", "it is down")]
        found = await foreign_objects(client, "ns")
    assert found == [
        "ConfigMap c",
        "Secret, which cannot be listed: you may not",
        "batch/v1, which cannot be read: it is down",
    ]


async def test_of_a_kind_a_thousand_are_named() -> None:
    async with running() as (server, client):
        server.page_size = 600
        for number in range(1_300):
            server.put(stored("Secret", f"s{number:04}"))
        found = await foreign_objects(client, "ns")
    assert found == [f"Secret s{number:04}" for number in range(1_000)]
