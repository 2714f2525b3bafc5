"""Short ways to write claims, volumes and classes, as JSON and as structs."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass

Json = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"


def claim_json(
    name: str = "data",
    *,
    size: str = "1Gi",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    storage_class: str | None = "",
    volume: str = "",
    annotations: dict[str, str] | None = None,
    uid: str = "",
    phase: str = "Pending",
    status: Json | None = None,
    owners: list[Json] | None = None,
    **spec: Any,
) -> Json:
    spec = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **spec}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    if volume:
        spec["volumeName"] = volume
    meta = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"}
    if annotations:
        meta["annotations"] = annotations  # type: ignore[assignment]
    if owners:
        meta["ownerReferences"] = owners  # type: ignore[assignment]
    return {"metadata": meta, "spec": spec, "status": {"phase": phase, **(status or {})}}


def volume_json(
    name: str = "pv",
    *,
    size: str = "1Gi",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    storage_class: str = "",
    claim: Json | None = None,
    by_name_only: bool = False,
    phase: str = "Available",
    policy: str = "Retain",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    node: str = "",
    finalizers: tuple[str, ...] = (),
    **spec: Any,
) -> Json:
    """A volume; `claim` is the one that it names, `node` the only one where it can be used."""
    body: Json = {
        "capacity": {"storage": size},
        "accessModes": list(modes),
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": storage_class,
        "hostPath": {"path": "/data"},
        **spec,
    }
    if claim is not None:
        meta = claim["metadata"]
        body["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": meta["namespace"],
                            "name": meta["name"]}  # fmt: skip
        if not by_name_only:
            body["claimRef"]["uid"] = meta["uid"]
    if node:
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {},
                     "annotations": annotations or {}, "finalizers": list(finalizers)},
        "spec": body,
        "status": {"phase": phase},
    }  # fmt: skip


def class_json(
    name: str = "fast",
    *,
    provisioner: str = "example.com/disks",
    is_late: bool = False,
    is_default: bool = False,
    created: str | None = None,
    **more: Any,
) -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if is_default else {}
    meta: Json = {"name": name, "uid": f"uid-{name}", "annotations": annotations}
    if created:
        meta["creationTimestamp"] = created
    return {
        "metadata": meta,
        "provisioner": provisioner,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer" if is_late else "Immediate",
        **more,
    }


def a_claim(name: str = "data", **more: Any) -> PersistentVolumeClaim:
    return msgspec.convert(claim_json(name, **more), PersistentVolumeClaim)


def a_volume(name: str = "pv", **more: Any) -> PersistentVolume:
    return msgspec.convert(volume_json(name, **more), PersistentVolume)


def a_storage_class(name: str = "fast", **more: Any) -> StorageClass:
    return msgspec.convert(class_json(name, **more), StorageClass)
