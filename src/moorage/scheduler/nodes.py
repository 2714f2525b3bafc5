"""Node info: a node's allocatable resources and their use, as plain integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from moorage.api import quantity
from moorage.api.claims import pod_claims
from moorage.api.nodes import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Node, Taint
from moorage.api.pods import Pod
from moorage.scheduler.query import HostPort, PodQuery, amount
from moorage.wire.client.informer import object_key

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod bound, assumed or nominated to a node, with its query."""

    key: str
    pod: Pod
    query: PodQuery

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0

    @property
    def claims(self) -> tuple[str, ...]:
        """Return `namespace/name` of the claims that the pod uses."""
        volumes = self.pod.spec.volumes
        return tuple(claim_keys(self.pod)) if volumes else ()


def placed(pod: Pod, query: PodQuery) -> Placed:
    return Placed(object_key(pod.metadata), pod, query)


class NodeInfo:
    """One node's allocatable resources (from its object) and their use (summed over its pods).

    `static_version` changes with the node object; no two nodes of a cluster ever share one.
    """

    __slots__ = (
        "affine",
        "allocatable",
        "claims",
        "handlers",
        "hard_taints",
        "images",
        "labels",
        "max_pods",
        "name",
        "node",
        "owners",
        "pods",
        "ports",
        "shown_cpu_milli",
        "shown_memory_bytes",
        "soft_taints",
        "static_version",
        "used",
    )

    def __init__(self, node: Node) -> None:
        self.static_version = 0
        self.used: dict[str, int] = {}
        self.shown_cpu_milli = 0
        self.shown_memory_bytes = 0
        self.pods: dict[str, Placed] = {}
        self.affine: dict[str, Placed] = {}
        self.ports: dict[HostPort, int] = {}
        self.owners: dict[str, int] = {}
        self.claims: dict[str, int] = {}
        self.set_node(node)

    def set_node(self, node: Node) -> None:
        """Read labels, taints, allocatable, handlers and images from the node object."""
        status = node.status
        self.node = node
        self.name = node.metadata.name
        self.labels = node.metadata.labels
        self.allocatable = {
            name: amount(name, quantity.parse(text)) for name, text in status.allocatable.items()
        }
        self.max_pods = self.allocatable.get("pods", 0)
        self.hard_taints = _with_effect(node.spec.taints, (NO_SCHEDULE, NO_EXECUTE))
        self.soft_taints = _with_effect(node.spec.taints, (PREFER_NO_SCHEDULE,))
        # No handlers reported: an old kubelet or engine. The set is unknown (None), not empty.
        self.handlers = frozenset(handler.name for handler in status.runtime_handlers) or None
        self.images = {name: image.size_bytes for image in status.images for name in image.names}

    def add(self, pod: Placed) -> None:
        """Add a pod and its use. The pod must not be on the node yet."""
        self._count(pod, 1)
        self.pods[pod.key] = pod
        if pod.query.terms.has_affinity:
            self.affine[pod.key] = pod

    def remove(self, key: str) -> Placed:
        """Remove a pod and its use. Returns the pod; raises KeyError if it is not on the node."""
        pod = self.pods.pop(key)
        self.affine.pop(key, None)
        self._count(pod, -1)
        return pod

    def _count(self, pod: Placed, sign: int) -> None:
        query = pod.query
        used = self.used
        for name, wanted in query.needs:
            used[name] = used.get(name, 0) + sign * wanted
        self.shown_cpu_milli += sign * query.shown_cpu_milli
        self.shown_memory_bytes += sign * query.shown_memory_bytes
        for port in query.ports:
            _tally(self.ports, port, sign)
        if query.owner_uid:
            _tally(self.owners, query.owner_uid, sign)
        for key in pod.claims:
            _tally(self.claims, key, sign)

    def copy(self) -> NodeInfo:
        """Return a copy on which changes can be tried."""
        other = NodeInfo.__new__(NodeInfo)
        for name in NodeInfo.__slots__:
            setattr(other, name, getattr(self, name))
        for name in ("used", "pods", "affine", "ports", "owners", "claims"):
            setattr(other, name, dict(getattr(self, name)))
        return other


def claim_keys(pod: Pod) -> Iterator[str]:
    """Yield `namespace/name` of the claims that the pod uses, those of ephemeral volumes too."""
    meta = pod.metadata
    for claim in pod_claims(meta.name, pod.spec.volumes):
        yield f"{meta.namespace}/{claim.name}"


def offers_differ(before: Node, after: Node) -> bool:
    """Return whether anything changed that scheduling depends on (heartbeats do not count)."""
    return (
        before.metadata.labels != after.metadata.labels
        or before.spec != after.spec
        or before.status.allocatable != after.status.allocatable
        or before.status.runtime_handlers != after.status.runtime_handlers
        or before.status.images != after.status.images
    )


def _with_effect(taints: Iterable[Taint], effects: Iterable[str]) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if taint.effect in effects)


def _tally(counts: dict[K, int], key: K, by: int) -> None:
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)
