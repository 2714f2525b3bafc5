"""Pod resource totals: container requests and limits plus sandbox overhead, counted once.

Source: KEP-688 "Pod Overhead", KEP-753 "Sidecar containers" (init peaks), KEP-2837 (pod-level
resources). Upstream counts overhead twice for a running pod with pod-level resources, because it
takes the maximum with a status that already includes it; here `resizing` alone consults a status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moorage.api.containers import Container, ResourceRequirements
from moorage.api.pods import PodSpec
from moorage.api.quantity import Quantity, add_resources, max_resources, parse

Amounts = dict[str, Quantity]
_Side = Callable[[ResourceRequirements], Mapping[str, str]]


def pod_requests(spec: PodSpec) -> Amounts:
    """Return the requests that scheduler and node charge: containers or init peak, plus overhead.

    Pod-level requests replace those of the containers where set.
    """
    return _sum(pod_requests_without_overhead(spec), _parsed(spec.overhead))


def pod_requests_without_overhead(spec: PodSpec) -> Amounts:
    """Return the requests of the containers; pod-level requests replace them where set."""
    return _pod_total(spec, lambda resources: resources.requests)


def container_requests(spec: PodSpec) -> Amounts:
    """Return the requests of the containers alone, ignoring pod-level requests."""
    return _containers_total(spec, lambda resources: resources.requests)


def pod_limits(spec: PodSpec) -> Amounts:
    """Return the limits of the whole pod; overhead is added only where a limit is set."""
    limits = _pod_total(spec, lambda resources: resources.limits)
    overhead = {name: amount for name, amount in _parsed(spec.overhead).items() if limits.get(name)}
    return _sum(limits, overhead)


def _pod_total(spec: PodSpec, side: _Side) -> Amounts:
    total = _containers_total(spec, side)
    if spec.resources is not None:
        total |= {
            name: amount
            for name, amount in _parsed(side(spec.resources)).items()
            if may_be_pod_level(name)
        }
    return total


def _containers_total(spec: PodSpec, side: _Side) -> Amounts:
    """Return the larger of the main containers' sum and the peak of initialisation.

    Sidecars (init containers that restart) keep running beside each later init container.
    """
    sidecars: Amounts = {}
    peaks: list[Amounts] = []
    for container in spec.init_containers:
        own = _parsed(side(container.resources))
        if is_sidecar(container):
            sidecars = _sum(sidecars, own)
            peaks.append(sidecars)
        else:
            peaks.append(_sum(sidecars, own))
    together = add_resources(*(side(container.resources) for container in spec.containers))
    return max_resources([*peaks, _sum(together, sidecars)])


def is_sidecar(container: Container) -> bool:
    """Return whether an init container keeps running beside the main containers."""
    return container.restart_policy == "Always"


def may_be_pod_level(name: str) -> bool:
    """Return whether a resource can be requested at pod level (KEP-2837)."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _parsed(resources: Mapping[str, str]) -> Amounts:
    return {name: parse(text) for name, text in resources.items()}


def _sum(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    total = dict(left)
    for name, amount in right.items():
        total[name] = total[name] + amount if name in total else amount
    return total
