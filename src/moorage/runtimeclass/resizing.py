"""Resources of a pod that is being resized: what it asks for, what it has, what it was promised.

Until an agent has carried a resize out, a pod is charged for the largest of the three, so that
neither an increase nor a decrease hands the same room to two pods. Source: KEP-1287
"In-Place Update of Pod Resources", KEP-5419; component-helpers `resource/helpers.go`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from moorage.api.containers import Container, ResourceRequirements
from moorage.api.pods import ContainerStatus, Pod, PodSpec
from moorage.api.quantity import max_resources, parse, to_texts
from moorage.runtimeclass.overhead import is_sidecar

PENDING = "PodResizePending"
IN_PROGRESS = "PodResizeInProgress"
DEFERRED = "Deferred"
INFEASIBLE = "Infeasible"
ERROR = "Error"


def is_infeasible(pod: Pod) -> bool:
    """Return whether the pod's node can never carry out the resize that is asked for."""
    return any(
        condition.type == PENDING and condition.reason == INFEASIBLE
        for condition in pod.status.conditions
    )


def charged_spec(pod: Pod) -> PodSpec:
    """Return the specification with the resources that the pod is charged for.

    Hot path: a pod that is not being resized gets its own specification, after one comparison for
    each container.
    """
    spec, status = pod.spec, pod.status
    reported = {
        container_status.name: container_status
        for container_status in (*status.container_statuses, *status.init_container_statuses)
        if container_status.resources is not None
    }
    whole = _pod_level(pod)
    is_known = not any(
        _differs(container, reported[container.name])
        for container in (*spec.containers, *spec.init_containers)
        if container.name in reported
    )
    if is_known and whole is spec.resources:
        return spec
    goes_on = not is_infeasible(pod)
    return msgspec.structs.replace(
        spec,
        resources=whole,
        containers=tuple(
            _charged(container, reported.get(container.name), asks=goes_on)
            for container in spec.containers
        ),
        init_containers=tuple(
            _charged(container, reported.get(container.name), asks=goes_on)
            if is_sidecar(container)
            else container
            for container in spec.init_containers
        ),
    )


def _differs(container: Container, status: ContainerStatus) -> bool:
    asked = container.resources
    return status.resources != asked or status.allocated_resources != asked.requests


def _charged(container: Container, status: ContainerStatus | None, *, asks: bool) -> Container:
    if status is None or status.resources is None:
        return container
    asked, has = container.resources, status.resources
    requests = [has.requests, status.allocated_resources]
    limits = [has.limits]
    if asks:
        requests.append(asked.requests)
        limits.append(asked.limits)
    resources = ResourceRequirements(
        claims=asked.claims, requests=_largest(requests), limits=_largest(limits)
    )
    return msgspec.structs.replace(container, resources=resources)


def _pod_level(pod: Pod) -> ResourceRequirements | None:
    """Return the charged resources of the whole pod: those of the specification unless it changes.

    Kubelets add the overhead to what they report, so the report counts during a resize only; else
    the overhead would be charged twice.
    """
    asked, has = pod.spec.resources, pod.status.resources
    if asked is None or has is None or not _is_resizing(pod):
        return asked
    names = asked.requests.keys()
    sources = [_of(has.requests, names), _of(pod.status.allocated_resources, names)]
    limits = [_of(has.limits, asked.limits.keys())]
    if not is_infeasible(pod):
        sources.append(asked.requests)
        limits.append(asked.limits)
    return ResourceRequirements(
        claims=asked.claims, requests=_largest(sources), limits=_largest(limits)
    )


def _is_resizing(pod: Pod) -> bool:
    if pod.status.observed_generation != pod.metadata.generation:
        return True
    return any(condition.type in (PENDING, IN_PROGRESS) for condition in pod.status.conditions)


def _of(resources: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: text for name, text in resources.items() if name in names}


def _largest(lists: Iterable[Mapping[str, str]]) -> dict[str, str]:
    parsed = [{name: parse(text) for name, text in resources.items()} for resources in lists]
    return to_texts(max_resources(parsed))
