"""Short ways to write the nodes and pods that the tests talk about."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.labels import Labels
from moorage.api.meta import Object, ObjectMeta
from moorage.api.nodes import Node, Taint
from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.query import QueryCache

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def a_node(
    name: str = "n1",
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: Labels | None = None,
    taints: tuple[str, ...] = (),
    unschedulable: bool = False,
    handlers: tuple[str, ...] = (),
    images: dict[str, int] | None = None,
    **allocatable: str,
) -> Node:
    """A node; taints are written `key=value:Effect`."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {HOSTNAME: name, **(labels or {})}},
            "spec": {
                "unschedulable": unschedulable,
                "taints": [msgspec.to_builtins(taint(text)) for text in taints],
            },
            "status": {
                "allocatable": {"cpu": cpu, "memory": memory, "pods": pods, **allocatable},
                "runtimeHandlers": [{"name": handler} for handler in handlers],
                "images": [
                    {"names": [image], "sizeBytes": size} for image, size in (images or {}).items()
                ],
            },
        },
        Node,
    )


def taint(text: str) -> Taint:
    pair, effect = text.rsplit(":", 1)
    key, _, value = pair.partition("=")
    return Taint(key=key, value=value, effect=effect)


def a_pod(
    name: str = "p",
    *,
    cpu: str | None = None,
    memory: str | None = None,
    node: str = "",
    labels: Labels | None = None,
    namespace: str = "default",
    priority: int | None = None,
    host_port: int = 0,
    host_ip: str = "",
    owner: str = "",
    phase: str = "Pending",
    started: str | None = None,
    nominated: str = "",
    uid: str = "",
    status: dict[str, Any] | None = None,
    requests: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of one container; `spec` takes further fields in the wire's camelCase."""
    wanted = {"cpu": cpu, "memory": memory, **(requests or {})}
    container: dict[str, Any] = {
        "name": "app",
        "image": "app:1",
        "resources": {"requests": {key: value for key, value in wanted.items() if value}},
    }
    if host_port:
        container["ports"] = [{"containerPort": 80, "hostPort": host_port, "hostIP": host_ip}]
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "labels": dict(labels or {}),
    }
    if owner:
        meta["ownerReferences"] = [{"uid": owner, "controller": True}]
    return msgspec.convert(
        {
            "metadata": meta,
            "spec": {
                "containers": [container],
                "schedulerName": "default-scheduler",
                **({"nodeName": node} if node else {}),
                **({"priority": priority} if priority is not None else {}),
                **spec,
            },
            "status": {
                "phase": phase,
                "nominatedNodeName": nominated,
                **({"startTime": started} if started else {}),
                **(status or {}),
            },
        },
        Pod,
    )


def a_class(name: str, handler: str | None = None) -> RuntimeClass:
    return RuntimeClass(metadata=ObjectMeta(name=name), handler=handler or name)


def a_cluster(*objects: Object, filters_by_handler: bool = True) -> ClusterState:
    """The state with these nodes and bound pods."""
    state = ClusterState(QueryCache(filters_by_handler=filters_by_handler))
    for obj in objects:
        if isinstance(obj, Node):
            state.set_node(obj)
        else:
            assert isinstance(obj, Pod)
            state.set_pod(obj)
    return state


def anti_affinity(labels: Labels, key: str = HOSTNAME) -> dict[str, Any]:
    return {"podAntiAffinity": {_REQUIRED: [_term(labels, key)]}}


def pod_affinity(labels: Labels, key: str = HOSTNAME) -> dict[str, Any]:
    return {"podAffinity": {_REQUIRED: [_term(labels, key)]}}


def spread(
    labels: Labels, key: str = ZONE, *, skew: int = 1, when: str = "DoNotSchedule", **more: Any
) -> dict[str, Any]:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": dict(labels)},
        **more,
    }


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _term(labels: Labels, key: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": key}
