"""Pod query: one pod's requirements on a node, as integers and parsed terms.

Pods of one template have the same requirements, so queries are cached by the encoded fields they
are computed from; all later code compares integers. CPU is in thousandths, all else in whole
units.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from moorage.api.containers import Container
from moorage.api.nodes import PREFER_NO_SCHEDULE
from moorage.api.pods import Pod, PodSpec, PreferredSchedulingTerm, Toleration
from moorage.api.quantity import Quantity
from moorage.runtimeclass import ClassLookup, ClassMissing, resolve_handler
from moorage.runtimeclass.overhead import is_sidecar, pod_requests
from moorage.runtimeclass.resizing import charged_spec
from moorage.scheduler.terms import PodTerms, pod_terms

HostPort = tuple[str, int, str]
"""(protocol, port, host address; "" is any)"""

_UNSTATED = {"cpu": "100m", "memory": "200Mi"}
"""Requests that scoring assumes for a container without requests (kube-scheduler's defaults)."""
_FIRST = ("cpu", "memory", "ephemeral-storage")
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True, eq=False)
class PodQuery:
    """The requirements of a pod specification. Compared by identity: the cache shares it.

    `needs` are the positive requests with overhead, CPU first; `shown_…` are the amounts used for
    scoring. `handler` is the CRI handler a node must have, None when the filter is off;
    `missing_class` is the name of a RuntimeClass that does not exist. `named_nodes` are the only
    nodes that required node affinity allows by name, None when it does not restrict names.
    """

    spec: PodSpec
    needs: tuple[tuple[str, int], ...]
    cpu_milli: int
    memory_bytes: int
    shown_cpu_milli: int
    shown_memory_bytes: int
    ports: tuple[HostPort, ...]
    tolerations: tuple[Toleration, ...]
    preferred_nodes: tuple[PreferredSchedulingTerm, ...]
    named_nodes: frozenset[str] | None
    images: tuple[str, ...]
    container_count: int
    terms: PodTerms
    owner_uid: str
    handler: str | None = None
    missing_class: str = ""

    @property
    def soft_tolerations(self) -> tuple[Toleration, ...]:
        """Return the tolerations that apply to PreferNoSchedule taints."""
        return tuple(t for t in self.tolerations if t.effect in ("", PREFER_NO_SCHEDULE))


class QueryCache:
    """Bounded cache of queries by template. `filters_by_handler` is as in SchedulerOptions."""

    def __init__(self, *, filters_by_handler: bool = True, most: int = _REMEMBERED) -> None:
        self._filters_by_handler = filters_by_handler
        self._most = most
        self._known: OrderedDict[object, PodQuery] = OrderedDict()

    def of_placed(self, pod: Pod) -> PodQuery:
        """Return the query of a bound pod, without its handler: its class no longer matters."""
        spec = charged_spec(pod)
        if spec is not pod.spec:
            pod = msgspec.structs.replace(pod, spec=spec)
        return self._get(pod, None, "")

    def of_waiting(self, pod: Pod, classes: ClassLookup) -> PodQuery:
        """Return the query of a pending pod, its RuntimeClass resolved now.

        If the class does not exist, `missing_class` is set in the result.
        """
        if not self._filters_by_handler:
            return self._get(pod, None, "")
        try:
            handler = resolve_handler(pod.spec.runtime_class_name, classes)
        except ClassMissing as missing:
            return self._get(pod, None, missing.class_name)
        return self._get(pod, handler, "")

    def _get(self, pod: Pod, handler: str | None, missing_class: str) -> PodQuery:
        key = (template_key(pod), handler, missing_class)
        query = self._known.get(key)
        if query is None:
            query = self._known[key] = make_query(_without_node_name(pod), handler, missing_class)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return query


def template_key(pod: Pod) -> bytes:
    """Return a cache key that is equal for pods with the same requirements on a node.

    Hot path: some 3 µs (bench/scheduler.py).
    """
    spec = pod.spec
    looks_at_pods = spec.affinity is not None or spec.topology_spread_constraints
    return msgspec.msgpack.encode(
        (
            spec.runtime_class_name,
            spec.node_selector,
            spec.tolerations,
            spec.overhead,
            spec.resources,
            [(c.image, c.resources, c.ports) for c in spec.containers],
            [(c.image, c.resources, c.ports, c.restart_policy) for c in spec.init_containers],
            owner_uid(pod),
            [volume.image for volume in spec.volumes if volume.image is not None],
            (
                spec.affinity,
                spec.topology_spread_constraints,
                pod.metadata.namespace,
                pod.metadata.labels,
            )
            if looks_at_pods
            else None,
        )
    )


def _without_node_name(pod: Pod) -> Pod:
    # The cache shares a query between pods on different nodes and pending pods.
    if not pod.spec.node_name:
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


def make_query(pod: Pod, handler: str | None = None, missing_class: str = "") -> PodQuery:
    """Compute the query of one pod, without the cache."""
    spec = pod.spec
    requests = pod_requests(spec)
    shown = pod_requests(_with_stated_requests(spec))
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return PodQuery(
        spec=spec,
        needs=_needs(requests),
        cpu_milli=_cpu(requests),
        memory_bytes=_memory(requests),
        shown_cpu_milli=_cpu(shown),
        shown_memory_bytes=_memory(shown),
        ports=host_ports(spec),
        tolerations=spec.tolerations,
        preferred_nodes=(
            affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
        ),
        named_nodes=_named_nodes(spec),
        images=tuple(normal_image(image) for image in _images(spec)),
        container_count=len(spec.containers) + len(spec.init_containers),
        terms=pod_terms(spec, pod.metadata.namespace, pod.metadata.labels),
        owner_uid=owner_uid(pod),
        handler=handler,
        missing_class=missing_class,
    )


def amount(name: str, quantity: Quantity) -> int:
    """Convert a quantity to an integer: thousandths of a CPU, whole units of all else."""
    return quantity.milli if name == "cpu" else quantity.value


def owner_uid(pod: Pod) -> str:
    """Return the uid of the pod's controller; "" without one."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return owner.uid
    return ""


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of the pod's containers and sidecars."""
    lasting = (*spec.containers, *(c for c in spec.init_containers if is_sidecar(c)))
    return tuple(
        (port.protocol or "TCP", port.host_port, _address(port.host_ip))
        for container in lasting
        for port in container.ports
        if port.host_port > 0
    )


def normal_image(name: str) -> str:
    """Return the image name with a tag; `latest` where it has none."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _address(host_ip: str) -> str:
    return "" if host_ip in ("0.0.0.0", "::") else host_ip


def _images(spec: PodSpec) -> Iterable[str]:
    for container in (*spec.init_containers, *spec.containers):
        yield container.image
    for volume in spec.volumes:
        if volume.image is not None:
            yield volume.image.reference


def _needs(requests: dict[str, Quantity]) -> tuple[tuple[str, int], ...]:
    ordered = (*_FIRST, *sorted(requests.keys() - set(_FIRST)))
    counted = ((name, amount(name, requests[name])) for name in ordered if name in requests)
    return tuple((name, count) for name, count in counted if count > 0)


def _cpu(requests: dict[str, Quantity]) -> int:
    return requests["cpu"].milli if "cpu" in requests else 0


def _memory(requests: dict[str, Quantity]) -> int:
    return requests["memory"].value if "memory" in requests else 0


def _with_stated_requests(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(
        spec,
        containers=tuple(map(_stated, spec.containers)),
        init_containers=tuple(map(_stated, spec.init_containers)),
    )


def _stated(container: Container) -> Container:
    resources = container.resources
    stated = msgspec.structs.replace(resources, requests={**_UNSTATED, **resources.requests})
    return msgspec.structs.replace(container, resources=stated)


def _named_nodes(spec: PodSpec) -> frozenset[str] | None:
    """Return the node names required affinity allows; None if a term does not restrict names."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None or not required.node_selector_terms:
        return None
    names: frozenset[str] = frozenset()
    for term in required.node_selector_terms:
        listed = [
            frozenset(field.values)
            for field in term.match_fields
            if field.key == "metadata.name" and field.operator == "In"
        ]
        if not listed:
            return None
        names |= frozenset.intersection(*listed)
    return names
