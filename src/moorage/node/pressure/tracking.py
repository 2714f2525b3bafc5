"""Node pressure over time: which conditions hold, and which thresholds call for an eviction.

`track` takes the state before and the observations of one moment, and returns the state after. A
soft threshold is due when it has been met for its grace period; a condition stays for the
transition period after the last threshold of it was met. Source: kubelet
`eviction_manager.go` `synchronize`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.api import quantity
from moorage.api.pods import Pod
from moorage.node.pressure.ranking import ContainerUse, PodUse
from moorage.node.pressure.thresholds import (
    CONDITIONS,
    DISK,
    MEMORY,
    SIGNALS,
    Observations,
    Threshold,
    amount_of,
    met,
)

# Messages of evictions, with the kubelet's words, and the annotations of their events.
#
# Source: kubelet `eviction/helpers.go` `evictionMessage`, `eviction_manager.go` `Admit`.

_RESOURCE = "starved_resource"
_CONTAINERS, _CONTAINERS_USAGE = "offending_containers", "offending_containers_usage"
_POD, _POD_USAGE = "offending_pod", "offending_pod_usage"


def condition_message(conditions: Sequence[str]) -> str:
    """Return why a pod is refused under these node conditions."""
    return f"The node had condition: [{' '.join(conditions)}]. "


def eviction_message(
    pod: Pod,
    resource: str,
    use: PodUse | None,
    due: Iterable[Threshold],
    observations: Observations,
) -> tuple[str, dict[str, str]]:
    """Return the message of a pod's eviction, and the annotations of its event."""
    message = f"The node was low on resource: {resource}. "
    message += _threshold_text(resource, due, observations)
    if use is None:
        return message, {}
    annotations: dict[str, str] = {}
    whole = pod.spec.resources.requests if pod.spec.resources is not None else {}
    if resource == MEMORY and MEMORY in whole and use.memory_bytes is not None:
        used = str(amount_of(MEMORY, use.memory_bytes))
        message += _consumption("Pod", pod.metadata.name, used, whole[MEMORY], resource)
        annotations |= {_POD: pod.metadata.name, _POD_USAGE: used}
    above = dict(_above_requests(pod, resource, use.containers))
    for name, (used, request) in above.items():
        message += _consumption("Container", name, used, request, resource)
    annotations |= {
        _CONTAINERS: ",".join(above),
        _CONTAINERS_USAGE: ",".join(used for used, _ in above.values()),
        _RESOURCE: resource,
    }
    return message, annotations


def _threshold_text(resource: str, due: Iterable[Threshold], observations: Observations) -> str:
    for threshold in due:
        seen = observations.get(threshold.signal)
        if SIGNALS[threshold.signal].resource == resource and seen is not None:
            least = threshold.value.of(seen.capacity)
            available = amount_of(resource, seen.available)
            return f"Threshold quantity: {least}, available: {available}. "
    return ""


def _consumption(what: str, name: str, used: str, request: str, resource: str) -> str:
    return (
        f"{what} {name} was using {used}, request is {request}, "
        f"has larger consumption of {resource}. "
    )


def _above_requests(
    pod: Pod, resource: str, uses: Mapping[str, ContainerUse]
) -> Iterable[tuple[str, tuple[str, str]]]:
    """Yield the containers that use more than they request: name, use, request."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        use = uses.get(container.name)
        number = _used(use, resource) if use is not None else None
        request = quantity.parse(container.resources.requests.get(resource, "0"))
        if number is not None and number > request.value:
            yield container.name, (str(amount_of(resource, number)), str(request))


def _used(use: ContainerUse, resource: str) -> int | None:
    if resource == MEMORY:
        return use.memory_bytes
    if resource == DISK and use.disk is not None:
        return use.disk.size_bytes
    return None


@dataclass(frozen=True, slots=True)
class PressureState:
    """What is remembered between two looks; times are monotonic seconds.

    `due` are the thresholds that were met for their grace period at the last look, `conditions` the
    node conditions that hold.
    """

    first_met_s: Mapping[Threshold, float] = field(default_factory=dict)
    condition_seen_s: Mapping[str, float] = field(default_factory=dict)
    due: tuple[Threshold, ...] = ()
    conditions: tuple[str, ...] = ()


def track(
    state: PressureState,
    thresholds: Sequence[Threshold],
    observations: Observations,
    now_s: float,
    transition_s: float,
) -> PressureState:
    """Return the state after a look."""
    unresolved = met(state.due, observations, with_reclaim=True)
    present = met(thresholds, observations, with_reclaim=False)
    current = [one for one in thresholds if one in present or one in unresolved]
    first = {one: state.first_met_s.get(one, now_s) for one in current}
    seen = dict(state.condition_seen_s) | {SIGNALS[one.signal].condition: now_s for one in current}
    return PressureState(
        first_met_s=first,
        condition_seen_s=seen,
        due=tuple(one for one in current if now_s - first[one] >= one.grace_s),
        conditions=tuple(
            name
            for name in CONDITIONS
            if name in seen and (seen[name] == now_s or now_s - seen[name] < transition_s)
        ),
    )
