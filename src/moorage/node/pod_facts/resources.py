"""Resources of a pod on its node: what it was promised, and what each container was given.

Pure. A resize first changes the promise (the allocation), then what the containers have. Source:
KEP-1287; kubelet `allocation/state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from moorage.api import quantity
from moorage.api.containers import Container, ResourceRequirements
from moorage.api.pods import Pod
from moorage.node.pod_facts.labels import AnyContainer, Given

RESIZABLE = ("cpu", "memory")
RESTART_CONTAINER = "RestartContainer"


class Allocation(msgspec.Struct, frozen=True):
    """What a pod was promised: by container, and for the whole pod where it asks for that."""

    containers: dict[str, ResourceRequirements]
    pod: ResourceRequirements | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Effective requests and limits: CPU in millicores, memory in bytes; 0 for none."""

    cpu_request: int
    cpu_limit: int
    memory_request: int
    memory_limit: int


def allocation_of(pod: Pod) -> Allocation:
    """Return the allocation that gives a pod what its specification asks for."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return Allocation(
        {container.name: container.resources for container in containers}, pod.spec.resources
    )


def allocated(pod: Pod, allocation: Allocation) -> Pod:
    """Return the pod with the resources of its allocation in place of those it asks for."""
    if allocation_of(pod) == allocation:
        return pod
    spec = msgspec.structs.replace(
        pod.spec,
        containers=_with_resources(pod.spec.containers, allocation.containers),
        init_containers=_with_resources(pod.spec.init_containers, allocation.containers),
        resources=allocation.pod,
    )
    return msgspec.structs.replace(pod, spec=spec)


def in_use(pod: Pod, given: Mapping[str, Given]) -> Pod:
    """Return the pod with the resources that its containers have, by container name.

    The resources of the whole pod, if it asks for any, are those its containers were given last.
    """
    if not given:
        return pod
    whole = pod.spec.resources
    if whole is not None:
        whole = next((one.pod for one in given.values() if one.pod is not None), whole)
    has = {
        container.name: current_resources(container, given.get(container.name))
        for container in (*pod.spec.containers, *pod.spec.init_containers)
    }
    return allocated(pod, Allocation(has, whole))


def given_by(pod: Pod, container: AnyContainer) -> Given:
    """Return the resources of a container by the pod's specification."""
    return Given(container.resources, pod.spec.resources)


def sizes_of(given: Given) -> Sizes:
    """Return effective sizes; a pod-level limit counts where the container has none."""
    own, whole = given.resources, given.pod
    limits = {**(whole.limits if whole is not None else {}), **own.limits}
    return Sizes(
        cpu_request=quantity.parse(own.requests.get("cpu", "0")).milli,
        cpu_limit=quantity.parse(limits.get("cpu", "0")).milli,
        memory_request=quantity.parse(own.requests.get("memory", "0")).value,
        memory_limit=quantity.parse(limits.get("memory", "0")).value,
    )


def current_resources(container: AnyContainer, given: Given | None) -> ResourceRequirements:
    """Return the resources of a running container as its status shows them.

    CPU and memory are those it was given; resources that cannot be resized those it was promised.
    """
    if given is None or given.resources == container.resources:
        return container.resources
    promised = container.resources
    return ResourceRequirements(
        claims=promised.claims,
        limits=_current(promised.limits, given.resources.limits),
        requests=_current(promised.requests, given.resources.requests),
    )


def _current(promised: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    fixed = {name: text for name, text in promised.items() if name not in RESIZABLE}
    return fixed | {name: text for name, text in given.items() if name in RESIZABLE}


_C = TypeVar("_C", bound=Container)


def _with_resources(
    containers: tuple[_C, ...], resources: Mapping[str, ResourceRequirements]
) -> tuple[_C, ...]:
    return tuple(
        msgspec.structs.replace(
            container, resources=resources.get(container.name, container.resources)
        )
        for container in containers
    )
