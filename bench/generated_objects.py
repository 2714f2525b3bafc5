"""Generated objects of a large cluster: nodes, profiles, classes and pods, by their number.

A node has ten handlers and the labels of 99 features for each, 50 images and managed fields as a
kubelet's node has; a pod of 4 KB has what a Deployment's pod has after admission and start.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from moorage.api.runtime_group import (
    HANDLER_GATE,
    HELD_FOR_ANNOTATION,
    feature_label,
    handler_label,
    profile_name,
)
from moorage.runtimeclass.features import FEATURES, is_labelled

HANDLERS = tuple(f"handler-{number}" for number in range(10))
CLASSES = 100
CHANGES = 100
"""Classes `class-new-N`, each of a handler `handler-new-N` that no node has, with a held pod."""
_REVISION = 10_000_000
_TIME = "2026-01-01T00:00:00Z"

Raw = dict[str, Any]


def node_name(number: int) -> str:
    return f"node-{number:05}"


def labels(number: int) -> dict[str, str]:
    """Return the labels of a node: of its system and cloud, of its handlers and their features."""
    name = node_name(number)
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": f"type-{number % 7}",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "pool": f"pool-{number % 20}",
    } | _own_labels(lacks_gpu=number % 20 == 0)


@cache
def _own_labels(*, lacks_gpu: bool) -> dict[str, str]:
    made = {}
    for handler in HANDLERS:
        made[handler_label(handler)] = "true"
        for feature in filter(is_labelled, FEATURES):
            if feature != "gpu" or not lacks_gpu:
                made[feature_label(handler, feature)] = "true"
    return made


def node(number: int) -> Raw:
    return {
        "metadata": _metadata(node_name(number), number, labels=labels(number)),
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud://{number}"},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "runtimeHandlers": [{"name": handler} for handler in HANDLERS],
            "conditions": [
                {"type": type_, "status": status, "reason": f"Kubelet{type_}", "message": "as said",
                 "lastHeartbeatTime": _TIME, "lastTransitionTime": _TIME}
                for type_, status in (("Ready", "True"), ("MemoryPressure", "False"),
                                      ("DiskPressure", "False"), ("PIDPressure", "False"))
            ],
            "images": _images(),
        },
    }  # fmt: skip


@cache
def _images() -> list[Raw]:
    digest = "0123456789abcdef" * 4
    return [
        {"names": [f"registry.example.com/team/app-{number}@sha256:{digest}"], "sizeBytes": 10**8}
        for number in range(50)
    ]


def profile(number: int) -> Raw:
    """Return the profile of a node's handler: ten of a node follow each other."""
    at, handler = number // len(HANDLERS), HANDLERS[number % len(HANDLERS)]
    name = profile_name(node_name(at), handler)
    working = {
        "type": "Working", "status": "True", "reason": "ProbeSucceeded", "message": "it ran",
        "lastTransitionTime": _TIME,
    }  # fmt: skip
    return {
        "metadata": _metadata(name, number),
        "spec": {"nodeName": node_name(at), "handler": handler},
        "status": {
            "isolation": "shared-kernel",
            "features": _features(lacks_gpu=at % 20 == 0),
            "conditions": [working],
        },
    }


@cache
def _features(*, lacks_gpu: bool) -> list[Raw]:
    return [
        {
            "name": feature,
            "state": "Unsupported" if feature == "gpu" and lacks_gpu else "Supported",
            "message": f"the probe of {feature} ended with status 0",
        }
        for feature in FEATURES
    ]


def runtime_class(number: int) -> Raw:
    handler = HANDLERS[number % len(HANDLERS)]
    return {"metadata": _metadata(f"class-{number}", number), "handler": handler}


def new_handler(change: int) -> str:
    return f"handler-new-{change}"


def new_class(change: int) -> Raw:
    metadata = _metadata(f"class-new-{change}", CLASSES + change)
    return {"metadata": metadata, "handler": new_handler(change)}


def held_pod(change: int) -> Raw:
    """Return a pod that waits for a node with the new handler."""
    metadata = _metadata(f"held-{change}", change) | {"namespace": "default", "annotations": {
        HELD_FOR_ANNOTATION: ""}}  # fmt: skip
    spec = {
        "runtimeClassName": f"class-new-{change}",
        "schedulingGates": [{"name": HANDLER_GATE}],
        "containers": [{"name": "app", "image": "registry.example.com/app:1"}],
        "nodeSelector": {handler_label(new_handler(change)): "true"},
    }
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def new_profile(number: int, change: int) -> Raw:
    """Return the profile of a node that has the new handler now."""
    made = profile(number * len(HANDLERS))
    made["metadata"] |= {"name": profile_name(node_name(number), new_handler(change))}
    return made | {"spec": {"nodeName": node_name(number), "handler": new_handler(change)}}


def node_with_new_handler(number: int, change: int) -> Raw:
    made = node(number)
    made["metadata"]["labels"] |= {handler_label(new_handler(change)): "true"}
    made["status"]["runtimeHandlers"].append({"name": new_handler(change)})
    return made


def pod(number: int, nodes: int) -> Raw:
    """Return a running pod of a ReplicaSet of ten pods."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"set-{number // 10}",
             "uid": f"set-{number // 10}", "controller": True}  # fmt: skip
    metadata = _metadata(f"pod-{number:06}", number, labels={"app": f"app-{number // 10}"})
    container = {
        "name": "app",
        "image": "registry.example.com/app:1",
        "env": [{"name": f"VARIABLE_{index}", "value": "v" * 40} for index in range(10)],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets"}],
        "terminationMessagePath": "/dev/termination-log",
    }
    spec = {
        "nodeName": node_name(number % nodes),
        "runtimeClassName": f"class-{number % CLASSES}",
        "containers": [container],
        "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}}],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}] * 2,
    }
    conditions = [
        {"type": type_, "status": "True", "lastTransitionTime": _TIME}
        for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    running = {"name": "app", "ready": True, "state": {"running": {"startedAt": _TIME}}}
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions,
              "containerStatuses": [running]}  # fmt: skip
    metadata |= {"namespace": "default", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": spec, "status": status}


def namespace(name: str) -> Raw:
    labels = {"kubernetes.io/metadata.name": name}
    return {"metadata": _metadata(name, 0, labels=labels), "status": {"phase": "Active"}}


def _metadata(name: str, number: int, *, labels: dict[str, str] | None = None) -> Raw:
    return {
        "name": name,
        "uid": f"00000000-0000-0000-0000-{number:012}",
        "resourceVersion": str(_REVISION + number),
        "creationTimestamp": _TIME,
        "labels": labels or {},
        "managedFields": _MANAGED,
    }


_MANAGED = [
    {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": _TIME,
     "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {
         f"f:label-{index}": {} for index in range(20)}}}}
    for manager in ("kubelet", "controller")
]  # fmt: skip
