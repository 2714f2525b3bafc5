"""Claims, volumes and classes as kubectl's users see them, with all controllers at work."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import RunningCluster, pod, until

GROUP = "storage.k8s.io/v1"


@pytest.fixture
def namespace(control_plane: RunningCluster) -> Iterator[str]:
    name = f"s-{uuid.uuid4().hex[:8]}"
    control_plane.create_namespace(name)
    yield name
    control_plane.remove("namespace", name)


@pytest.fixture
def unique(control_plane: RunningCluster) -> Iterator[str]:
    """A name for objects outside of namespaces, which go afterwards."""
    name = f"x-{uuid.uuid4().hex[:8]}"
    yield name
    for kind in ("pv", "sc", "vac", "csidriver", "csinode", "volumeattachment"):
        control_plane.remove(kind, name)


def claim(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }


def volume(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {"test": name}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "e2e.example.com", "volumeHandle": "h"},
            **spec,
        },
    }


def bound(control_plane: RunningCluster, name: str, namespace: str) -> None:
    control_plane.kubectl(
        "wait", "--for=jsonpath={.status.phase}=Bound", f"pvc/{name}", "-n", namespace,
        "--timeout=20s",
    )  # fmt: skip


def is_gone(control_plane: RunningCluster, kind: str, name: str, *where: str) -> bool:
    return not control_plane.kubectl("get", kind, name, "--ignore-not-found", *where).stdout


def test_tables_of_claims_volumes_and_classes(
    control_plane: RunningCluster, namespace: str, unique: str
) -> None:
    control_plane.apply(
        {"apiVersion": GROUP, "kind": "StorageClass", "metadata": {"name": unique},
         "provisioner": "example.com/none"},
        volume(unique, storageClassName=unique),
        claim("data", namespace, storageClassName=unique),
    )  # fmt: skip
    bound(control_plane, "data", namespace)

    def table(*arguments: str) -> list[list[str]]:
        lines = control_plane.kubectl("get", *arguments).stdout.splitlines()
        return [line.split("  ") for line in lines]

    def cells(*arguments: str) -> tuple[list[str], list[str]]:
        head, row = ([cell.strip() for cell in line if cell.strip()]
                     for line in table(*arguments))  # fmt: skip
        return head, row

    head, row = cells("pvc", "-n", namespace, "-o", "wide")
    assert head == ["NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS MODES", "STORAGECLASS",
                    "VOLUMEATTRIBUTESCLASS", "AGE", "VOLUMEMODE"]  # fmt: skip
    assert row[:7] == ["data", "Bound", unique, "1Gi", "RWO", unique, "<unset>"]
    assert row[8] == "Filesystem"
    head, row = cells("pv", unique)
    assert head == ["NAME", "CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STATUS", "CLAIM",
                    "STORAGECLASS", "VOLUMEATTRIBUTESCLASS", "REASON", "AGE"]  # fmt: skip
    assert row[:8] == [unique, "1Gi", "RWO", "Retain", "Bound", f"{namespace}/data", unique,
                       "<unset>"]  # fmt: skip
    head, row = cells("sc", unique)
    assert head == ["NAME", "PROVISIONER", "RECLAIMPOLICY", "VOLUMEBINDINGMODE",
                    "ALLOWVOLUMEEXPANSION", "AGE"]  # fmt: skip
    assert row[:5] == [unique, "example.com/none", "Delete", "Immediate", "false"]


def test_a_claim_stays_terminating_until_its_pod_is_gone(
    control_plane: RunningCluster, namespace: str
) -> None:
    user = pod("user", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    # On a node, though there is none: what counts is that the pod has been placed.
    user["spec"]["nodeName"] = "nowhere"
    user["metadata"]["namespace"] = namespace
    control_plane.apply(claim("data", namespace), user)
    control_plane.kubectl("delete", "pvc", "data", "-n", namespace, "--wait=false")
    row = control_plane.kubectl("get", "pvc", "data", "-n", namespace, "--no-headers").stdout
    assert row.split()[1] == "Terminating"
    finalizers = control_plane.get("pvc", "data", "-n", namespace)["metadata"]["finalizers"]
    assert finalizers == ["kubernetes.io/pvc-protection"]
    control_plane.kubectl("delete", "pod", "user", "-n", namespace, "--force")
    control_plane.kubectl("wait", "--for=delete", "pvc/data", "-n", namespace, "--timeout=20s")


def test_a_bound_volume_stays_until_its_claim_is_gone(
    control_plane: RunningCluster, namespace: str, unique: str
) -> None:
    control_plane.apply(
        volume(unique, storageClassName=unique), claim("data", namespace, storageClassName=unique)
    )
    bound(control_plane, "data", namespace)
    control_plane.kubectl("delete", "pv", unique, "--wait=false")
    assert control_plane.kubectl("get", "pv", unique, "--no-headers").stdout.split()[4] == (
        "Terminating"
    )
    control_plane.kubectl("delete", "pvc", "data", "-n", namespace, "--timeout=20s")
    until(lambda: is_gone(control_plane, "pv", unique), "the volume goes")


def test_what_a_claim_may_change(
    control_plane: RunningCluster, namespace: str, unique: str
) -> None:
    control_plane.apply(
        {"apiVersion": GROUP, "kind": "StorageClass", "metadata": {"name": unique},
         "provisioner": "example.com/none"},
        volume(unique, storageClassName=unique),
        claim("data", namespace, storageClassName=unique),
    )  # fmt: skip
    bound(control_plane, "data", namespace)

    def patched(patch: dict[str, Any], *, fails: bool = False) -> str:
        done = control_plane.kubectl(
            "patch", "pvc", "data", "-n", namespace, "-p", json.dumps(patch), fails=fails
        )
        return done.stderr

    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert "the storageclass that provisions the pvc must support resize" in patched(
        larger, fails=True
    )
    assert "spec is immutable after creation except resources.requests" in patched(
        {"spec": {"accessModes": ["ReadOnlyMany"]}}, fails=True
    )
    control_plane.kubectl("patch", "sc", unique, "-p", '{"allowVolumeExpansion":true}')
    patched(larger)

    def events() -> list[str]:
        items = control_plane.get("events", "-n", namespace)["items"]
        return [event["message"] for event in items if event["reason"] == "ExternalExpanding"]

    until(lambda: bool(events()), "the event")
    assert events() == ["waiting for an external controller to expand this PVC"]
    assert "field can not be less than status.capacity" in patched(
        {"spec": {"resources": {"requests": {"storage": "1Mi"}}}}, fails=True
    )


def test_the_phase_of_a_volume_has_its_time(control_plane: RunningCluster, unique: str) -> None:
    control_plane.apply(volume(unique))
    control_plane.kubectl(
        "wait", "--for=jsonpath={.status.phase}=Available", f"pv/{unique}", "--timeout=20s"
    )
    status = control_plane.get("pv", unique)["status"]
    assert (
        status["lastPhaseTransitionTime"]
        >= (control_plane.get("pv", unique)["metadata"]["creationTimestamp"])
    )
    control_plane.kubectl(
        "patch", "pv", unique, "--subresource=status", "--type=merge", "-p",
        '{"status":{"message":"m","reason":"r"}}',
    )  # fmt: skip
    assert control_plane.get("pv", unique)["status"] == {**status, "message": "m", "reason": "r"}


def test_a_pod_brings_its_claim_along(control_plane: RunningCluster, namespace: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": claim("c", namespace)["spec"]}
    ephemeral = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    user = pod("user", volumes=[ephemeral])
    user["metadata"]["namespace"] = namespace
    control_plane.apply(user)
    until(lambda: not is_gone(control_plane, "pvc", "user-scratch", "-n", namespace), "the claim")
    made = control_plane.get("pvc", "user-scratch", "-n", namespace)
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "user", True)
    assert made["metadata"]["labels"] == {"a": "b"}
    control_plane.kubectl("delete", "pod", "user", "-n", namespace, "--timeout=20s")
    control_plane.kubectl(
        "wait", "--for=delete", "pvc/user-scratch", "-n", namespace, "--timeout=20s"
    )


def test_the_default_class_is_taken_by_claims_without_one(
    control_plane: RunningCluster, namespace: str, unique: str
) -> None:
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    control_plane.apply(
        {"apiVersion": GROUP, "kind": "StorageClass", "provisioner": "example.com/none",
         "metadata": {"name": unique, "annotations": mark}}
    )  # fmt: skip
    row = control_plane.kubectl("get", "sc", unique, "--no-headers").stdout
    assert row.startswith(f"{unique} (default)")
    control_plane.apply(claim("plain", namespace), claim("none", namespace, storageClassName=""))
    assert control_plane.get("pvc", "plain", "-n", namespace)["spec"]["storageClassName"] == unique
    assert control_plane.get("pvc", "none", "-n", namespace)["spec"]["storageClassName"] == ""


def test_a_quota_counts_claims_and_their_storage_until_they_are_gone(
    control_plane: RunningCluster, namespace: str
) -> None:
    of_class = "gold.storageclass.storage.k8s.io"
    hard = {
        "persistentvolumeclaims": "2",
        "requests.storage": "3Gi",
        f"{of_class}/persistentvolumeclaims": "1",
        f"{of_class}/requests.storage": "3Gi",
    }
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": hard},
             "metadata": {"name": "q", "namespace": namespace}}  # fmt: skip
    control_plane.apply(quota)

    def used() -> dict[str, str]:
        status = control_plane.get("quota", "q", "-n", namespace).get("status", {})
        return dict(status.get("used", {}))

    nothing = dict.fromkeys(hard, "0")
    until(lambda: used() == nothing, "the quota is counted")
    control_plane.apply(claim("one", namespace, storageClassName="gold"))
    until(lambda: used()["requests.storage"] == "1Gi", "the claim is counted")
    assert used() == {
        "persistentvolumeclaims": "1", "requests.storage": "1Gi",
        f"{of_class}/persistentvolumeclaims": "1", f"{of_class}/requests.storage": "1Gi",
    }  # fmt: skip
    second = claim("two", namespace, storageClassName="gold")
    refused = control_plane.kubectl("create", "-f", "-", stdin=json.dumps(second), fails=True)
    assert f"requested: {of_class}/persistentvolumeclaims=1" in refused.stderr
    large = claim("two", namespace, resources={"requests": {"storage": "3Gi"}})
    refused = control_plane.kubectl("create", "-f", "-", stdin=json.dumps(large), fails=True)
    assert "requested: requests.storage=3Gi, used: requests.storage=1Gi" in refused.stderr
    control_plane.kubectl("delete", "pvc", "one", "-n", namespace, "--timeout=20s")
    until(lambda: used() == nothing, "what is gone is not counted")


def test_a_namespace_goes_with_its_claims(control_plane: RunningCluster) -> None:
    name = f"s-{uuid.uuid4().hex[:8]}"
    control_plane.create_namespace(name)
    user = pod("user", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    user["metadata"]["namespace"] = name
    control_plane.apply(claim("data", name), user)
    control_plane.kubectl("delete", "namespace", name, "--timeout=30s")
    assert is_gone(control_plane, "namespace", name)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("CSIDriver", {"spec": {"volumeLifecycleModes": ["Ephemeral"]}}),
        ("CSINode", {"spec": {"drivers": None}}),
        ("StorageClass", {"provisioner": "e2e-fake-provisioner"}),
        ("VolumeAttributesClass",
         {"driverName": "e2e-fake-csi-driver", "parameters": {"foo": "bar"}}),
        ("VolumeAttachment",
         {"spec": {"attacher": "e2e-test.storage.k8s.io", "nodeName": "n",
                   "source": {"persistentVolumeName": "pv"}}, "status": {"attached": False}}),
    ],
)  # fmt: skip
def test_the_life_of_a_kind(
    control_plane: RunningCluster, unique: str, kind: str, body: dict[str, Any]
) -> None:
    """As upstream's conformance specifications go: create, patch, update, delete, all at once."""
    resource = kind.lower()

    def create(name: str) -> None:
        obj = {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, **body}
        control_plane.kubectl("create", "-f", "-", stdin=json.dumps(obj))

    create(unique)
    control_plane.kubectl("patch", resource, unique, "-p",
                          json.dumps({"metadata": {"labels": {unique: "patched"}}}))  # fmt: skip
    read = control_plane.get(resource, unique)
    assert read["metadata"]["labels"] == {unique: "patched"}
    read["metadata"]["labels"] = {unique: "updated"}
    control_plane.kubectl("replace", "-f", "-", stdin=json.dumps(read))
    assert len(control_plane.get(resource, "-l", f"{unique}=updated")["items"]) == 1
    control_plane.kubectl("delete", resource, unique, "--timeout=20s")
    create(unique)
    control_plane.kubectl("label", resource, unique, f"{unique}=again")
    control_plane.kubectl("delete", resource, "-l", f"{unique}=again", "--timeout=20s")
    assert is_gone(control_plane, resource, unique)


def test_the_status_of_an_attachment(control_plane: RunningCluster, unique: str) -> None:
    spec = {"attacher": "e2e", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
    obj = {"apiVersion": GROUP, "kind": "VolumeAttachment", "metadata": {"name": unique},
           "spec": spec, "status": {"attached": True}}  # fmt: skip
    control_plane.kubectl("create", "-f", "-", stdin=json.dumps(obj))
    assert control_plane.get("volumeattachment", unique)["status"] == {"attached": False}
    control_plane.kubectl(
        "patch", "volumeattachment", unique, "--subresource=status", "--type=merge", "-p",
        '{"status":{"attached":true}}',
    )  # fmt: skip
    assert control_plane.get("volumeattachment", unique)["status"] == {"attached": True}
    row = control_plane.kubectl("get", "volumeattachment", unique, "--no-headers").stdout.split()
    assert row[:5] == [unique, "e2e", "pv", "n", "true"]
